//! What the documentation tells a person to type works, as it stands there, in the sandbox.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "this is how a test fails"
)]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use ccm_envtest::variable;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The shell blocks of a page, without those that start the sandbox itself.
fn shell_blocks(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    text.split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("```").map(|(block, _)| block.to_owned()))
        .filter(|block| !block.contains("cargo xtask"))
        .collect()
}

/// As the page says, but watches end by themselves and `<id>` is a machine.
fn as_script(blocks: &[String]) -> String {
    let mut script = "set -eux\n\
         machine=$(aws ec2 describe-instances --query 'Reservations[0].Instances[0].InstanceId' --output text)\n"
        .to_owned();
    for line in blocks.iter().flat_map(|block| block.lines()) {
        let line = line.replace("<id>", "$machine");
        if line.ends_with(" -w") {
            script.push_str(&format!("timeout 12 {line} || test $? = 124\n"));
        } else {
            script.push_str(&line);
            script.push('\n');
        }
    }
    script
}

/// What the tutorial says of its last two steps. The Node goes in the second monitor period.
const TWO_NODES: &str = "nodes() { kubectl get nodes --no-headers | wc -l; }\n\
    for n in $(seq 60); do test \"$(nodes)\" -gt 2 || break; sleep 0.5; done\n\
    test \"$(nodes)\" = 2\n";
const WITHOUT_THE_LOAD_BALANCER: &str = "left=$(aws elbv2 describe-load-balancers --query \
    'LoadBalancers[].LoadBalancerName' --output text)\n\
    test -z \"$left\"\n";

/// The sandbox's program, from `cargo xtask test`.
fn program() -> String {
    variable("CCM_SANDBOX")
        .expect("CCM_SANDBOX is set: run this through `cargo xtask test integration`")
}

fn sandbox(args: &[&str], script: &str) -> Output {
    let python = variable("CCM_PYTHON").unwrap_or_default();
    let tools = Path::new(&python)
        .parent()
        .unwrap_or_else(|| Path::new("/"));
    let path = format!(
        "{}:{}",
        tools.display(),
        variable("PATH").unwrap_or_default()
    );
    Command::new(program())
        .args(args)
        .args(["--exec", script])
        .env("PATH", path)
        .current_dir(root())
        .output()
        .unwrap()
}

fn checked(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out
}

fn follow_the_tutorial(args: &[&str]) {
    let blocks = shell_blocks("docs/tutorial/first-steps.md");
    assert!(blocks.len() >= 8, "{blocks:?}");
    let script = format!(
        "{}{WITHOUT_THE_LOAD_BALANCER}{TWO_NODES}",
        as_script(&blocks)
    );
    let out = checked(&sandbox(args, &script));
    for expected in [
        "Node synced successfully",
        "elb.us-west-2.amazonaws.com",
        "EnsuredLoadBalancer",
        "cross-zone-load-balancing-enabled=perhaps",
        "NotReady",
        "service \"web\" deleted",
    ] {
        assert!(out.contains(expected), "{expected} is not in:\n{out}");
    }
}

#[test]
fn the_tutorial_works_as_written() {
    follow_the_tutorial(&[]);
}

#[test]
fn the_tutorial_works_as_written_on_the_real_api_server() {
    follow_the_tutorial(&["--real"]);
}

#[test]
fn the_commands_of_the_sandbox_guide_work() {
    let blocks = shell_blocks("docs/guides/sandbox.md");
    let script = format!(
        "{}kubectl apply -f docs/tutorial/service.yaml\n\
         for n in $(seq 60); do kubectl get events | grep TooManyLoadBalancers && exit 0; sleep 0.5; done; exit 1\n",
        as_script(&blocks)
    );
    let out = checked(&sandbox(&["--nodes", "1"], &script));
    assert!(out.contains("SyncLoadBalancerFailed"), "{out}");
}

#[test]
fn the_sandbox_ends_with_the_status_of_its_command_and_writes_the_kubeconfig_where_told() {
    let dir = tempfile::TempDir::new().unwrap();
    let kubeconfig = dir.path().join("config");
    let args = ["--nodes", "2", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let script = "test \"$(kubectl get nodes --no-headers | wc -l)\" = 2 && exit 7";
    let output = sandbox(&args, script);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    assert!(text.contains("127.0.0.1"), "{text}");
}

/// A start may take this long on a busy machine, with the real API server too.
const START: Duration = Duration::from_secs(180);
/// An end is quick.
const END: Duration = Duration::from_secs(10);

/// The command lines of all processes that have this text in it.
fn command_lines_with(text: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(text))
        .collect()
}

/// Starts the sandbox, waits for this line, interrupts it, and looks for what is left.
async fn interrupted(args: &[&str], line: &str) {
    let temporary = tempfile::TempDir::new().unwrap();
    let folder = temporary.path().to_str().unwrap();
    let mut child = tokio::process::Command::new(program())
        .args(args)
        .env("TMPDIR", folder)
        .current_dir(root())
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = async {
        while let Some(found) = lines.next_line().await.unwrap() {
            if found.contains(line) {
                return true;
            }
        }
        false
    };
    assert!(timeout(START, ready).await.unwrap(), "no {line:?}");
    assert!(
        !command_lines_with(folder).is_empty(),
        "its processes are not found by their folder"
    );

    let id = child.id().unwrap().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(sent.success());
    let status = timeout(END, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(130));
    // The kernel takes a moment for a killed process.
    let gone = async {
        while !command_lines_with(folder).is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let gone = timeout(END, gone).await;
    assert!(gone.is_ok(), "left: {:#?}", command_lines_with(folder));
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(left.is_empty(), "left: {left:?}");
}

#[tokio::test]
async fn an_interrupt_ends_everything_and_leaves_nothing_behind() {
    interrupted(&[], "The sandbox is ready").await;
}

#[tokio::test]
async fn an_interrupt_ends_the_real_api_server_and_leaves_nothing_behind() {
    interrupted(&["--real"], "The sandbox is ready").await;
}

#[tokio::test]
async fn an_interrupt_ends_what_the_command_started() {
    let script = "tail -f \"$KUBECONFIG\" >/dev/null & echo started; tail -f \"$KUBECONFIG\"; true";
    interrupted(&["--exec", script], "started").await;
}
