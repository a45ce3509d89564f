//! The binary as a user starts it: wrong flags, files that are not there, a server that is away.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use ccm_testkit::eventually;

/// Long enough for a loaded machine.
const SOON: Duration = Duration::from_secs(30);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloud-controller-manager"));
    // No credentials or proxies of whoever runs the tests.
    command.env_clear().args(args).stdin(Stdio::null());
    command
}

/// Runs to the end: status, standard output, standard error.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let output = command(args).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// A cloud of this binary, `None` when it has none.
fn cloud() -> Option<String> {
    let first = ccm_bin::providers::all().first()?.name;
    Some(format!("--cloud-provider={first}"))
}

/// What a binary without a cloud says to everything but help and version.
fn assert_says_no_cloud(args: &[&str]) {
    let (status, _, errors) = run(args);
    assert_eq!(status, Some(1));
    assert!(
        errors.contains("no cloud was compiled into this binary"),
        "{errors}"
    );
}

/// A port on which nobody listens.
fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn temporary(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ccm-start-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

/// REQ-APP-28
#[test]
fn help_and_version_end_with_0() {
    let (status, text, _) = run(&["--help"]);
    assert_eq!(status, Some(0));
    assert!(text.contains("--cloud-provider string") && text.contains("Leader-migration flags:"));
    let version = env!("CARGO_PKG_VERSION");
    let (status, text, _) = run(&["--version"]);
    assert_eq!(status, Some(0));
    assert_eq!(text, format!("cloud-controller-manager v{version}\n"));
    let (status, text, _) = run(&["--version=raw"]);
    assert_eq!(status, Some(0));
    assert!(text.contains("platform: \"linux/"), "{text}");
}

#[test]
fn the_flags_reference_is_printed_for_the_documentation() {
    let (status, text, _) = run(&["docs", "flags"]);
    assert_eq!(status, Some(0));
    let clouds = ccm_core::cloud::Registry::new(ccm_bin::providers::all()).unwrap();
    assert_eq!(text, ccm_core::config::render_reference(&clouds));
}

/// REQ-APP-28
#[test]
fn an_unknown_flag_ends_with_1_and_is_named() {
    let (status, _, errors) = run(&["--cloud-provder=aws", "extra"]);
    assert_eq!(status, Some(1));
    assert!(
        errors.contains("unknown flag: --cloud-provder; did you mean --cloud-provider?"),
        "{errors}"
    );
    assert!(errors.contains("unexpected argument \"extra\""), "{errors}");
}

/// REQ-AWS-CFG-29
#[test]
fn an_unknown_cloud_provider_ends_with_1_and_the_known_ones_are_named() {
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&["--cloud-provider=foo"]);
    };
    for flag in [format!("{cloud}/v2"), "--cloud-provider=foo".to_owned()] {
        let (status, _, errors) = run(&[&flag, "--master=http://127.0.0.1:1"]);
        assert_eq!(status, Some(1), "{errors}");
        for name in [&flag, &cloud] {
            let (_, name) = name.split_once('=').unwrap();
            assert!(errors.contains(name), "{name} is not in {errors}");
        }
    }
}

/// REQ-APP-01
#[test]
fn a_missing_cloud_provider_ends_with_1() {
    let Some(_) = cloud() else {
        return assert_says_no_cloud(&[]);
    };
    let (status, _, errors) = run(&["--kubeconfig=/nonexistent"]);
    assert_eq!(status, Some(1));
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("--cloud-provider is required"), "{errors}");
}

/// REQ-APP-28
#[test]
fn all_bad_flags_are_told_at_once_and_end_with_1() {
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&["--secure-port=70000"]);
    };
    let (status, _, errors) = run(&[
        &cloud,
        "--leader-elect=maybe",
        "--secure-port=70000",
        "--nope",
    ]);
    assert_eq!(status, Some(1));
    assert_eq!(errors.lines().count(), 3, "{errors}");
    for flag in ["--leader-elect", "--secure-port", "--nope"] {
        assert!(errors.contains(flag), "{errors}");
    }
}

/// REQ-APP-28
#[test]
fn each_bad_value_is_told_with_its_flag_and_the_accepted_form_in_one_line() {
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&["--node-monitor-period=0s"]);
    };
    let bad = [
        ("--leader-elect-lease-duration", "15", "\"15s\""),
        ("--bind-address", "here", "IP address"),
        ("--kube-api-qps", "fast", "number"),
        ("--feature-gates", "NoSuchGate=true", "NoSuchGate"),
        ("--v", "high", "write 0 or a higher number"),
        ("--controllers", "*,nodes", "cloud-node-controller"),
        ("--concurrent-node-syncs", "0", "at least 1"),
        ("--concurrent-service-syncs", "-1", "at least 1"),
        ("--node-monitor-period", "0s", "longer than 0s"),
        ("--leader-elect-resource-lock", "endpoints", "\"leases\""),
        ("--secure-port", "70000", "0 (off) to 65535"),
        (
            "--tls-min-version",
            "VersionTLS09",
            "VersionTLS12 or VersionTLS13",
        ),
        ("--tls-cert-file", "/x", "--tls-private-key-file"),
        ("--health-bind-address", "10258", "127.0.0.1:10268"),
    ];
    // Nothing is contacted: an address that leads nowhere would be waited for.
    let mut args = vec![cloud, format!("--master=http://{}", closed_port())];
    args.extend(bad.iter().map(|(flag, value, _)| format!("{flag}={value}")));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (status, _, errors) = run(&args);
    assert_eq!(status, Some(1));
    assert_eq!(errors.lines().count(), bad.len(), "{errors}");
    for (flag, value, accepted) in bad {
        let value = value.trim_start_matches("*,");
        let mut lines = errors.lines();
        let told = lines.any(|line| {
            [flag, value, accepted]
                .iter()
                .all(|part| line.contains(part))
        });
        assert!(told, "{flag} {value} {accepted}: {errors}");
    }
}

#[test]
fn an_unreadable_kubeconfig_ends_with_1_and_is_named() {
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&["--kubeconfig=/nonexistent/kubeconfig"]);
    };
    let (status, _, errors) = run(&[&cloud, "--kubeconfig=/nonexistent/kubeconfig"]);
    assert_eq!(status, Some(1));
    assert!(
        errors.contains("--kubeconfig /nonexistent/kubeconfig: cannot be read"),
        "{errors}"
    );
}

#[test]
fn outside_a_cluster_the_flags_to_the_api_server_are_named() {
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&["--secure-port=0"]);
    };
    let (status, _, errors) = run(&[&cloud, "--secure-port=0"]);
    assert_eq!(status, Some(1));
    assert!(errors.contains("give --kubeconfig FILE"), "{errors}");
}

/// REQ-APP-06, REQ-APP-28
#[test]
fn an_unreadable_cloud_config_ends_with_255_and_is_named() {
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&["--cloud-config=/nonexistent/cloud.conf"]);
    };
    let master = format!("--master=http://{}", closed_port());
    let (status, _, errors) = run(&[&cloud, &master, "--cloud-config=/nonexistent/cloud.conf"]);
    assert_eq!(status, Some(255));
    assert!(
        errors.contains("--cloud-config /nonexistent/cloud.conf: cannot be read"),
        "{errors}"
    );
}

#[test]
fn a_malformed_cloud_config_ends_with_255_and_names_the_line() {
    let path = temporary(
        "malformed.conf",
        "[Global]\nZone = us-west-2a\nthis is = [ not\n",
    );
    let file = format!("--cloud-config={}", path.display());
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&[&file]);
    };
    let master = format!("--master=http://{}", closed_port());
    let (status, _, errors) = run(&[&cloud, &master, &file, "--secure-port=0"]);
    assert_eq!(status, Some(255));
    let told: Vec<_> = errors
        .lines()
        .filter(|line| line.contains("could not init cloud provider"))
        .collect();
    assert_eq!(told.len(), 1, "{errors}");
    assert!(told[0].contains("line 3"), "{errors}");
    assert!(told[0].contains("malformed.conf"), "{errors}");
    std::fs::remove_file(path).unwrap();
}

/// A running manager; killed when dropped.
struct Running {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut child = command(args).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let sink = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = sink.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self {
            child,
            log,
            reader: Some(reader),
        }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line of the log with all of these texts.
    async fn line_with(&self, texts: &[&str]) -> String {
        eventually("log line", SOON, || async {
            let log = self.log();
            let found = log
                .lines()
                .find(|line| texts.iter().all(|text| line.contains(text)));
            found.map(str::to_owned).ok_or(log)
        })
        .await
    }

    async fn signal_and_wait(mut self, signal: &str) -> (ExitStatus, String) {
        let kill = format!("kill -{signal} {}", self.child.id());
        let killed = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(killed.success());
        let child = Mutex::new(&mut self.child);
        let status = eventually("the end", Duration::from_secs(10), || async {
            let status = child.lock().unwrap().try_wait().unwrap();
            status.ok_or_else(|| "still running".to_owned())
        })
        .await;
        self.reader.take().unwrap().join().unwrap();
        (status, self.log())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// REQ-APP-28
#[tokio::test]
async fn an_unreachable_api_server_is_waited_for_until_sigterm() {
    let secret = "hunter2-in-the-kubeconfig";
    let server = format!("http://{}", closed_port());
    let kubeconfig = temporary(
        "kubeconfig",
        &format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{server: '{server}'}}}}], \
             users: [{{name: u, user: {{token: {secret}}}}}]}}"
        ),
    );
    let file = format!("--kubeconfig={}", kubeconfig.display());
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&[&file]);
    };
    let running = Running::start(&[
        &cloud,
        &file,
        "--leader-elect=false",
        "--secure-port=0",
        "--health-bind-address=127.0.0.1:0",
        "-v=10",
    ]);
    let serving = running.line_with(&["serving health and metrics"]).await;
    let address = serving.rsplit("address=").next().unwrap().trim().to_owned();
    running
        .line_with(&["waiting for the API server", &server])
        .await;
    let ready = get(&address, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(ready.contains("[-]api-server failed"), "{ready}");
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    let metrics = get(&address, "/metrics");
    assert!(metrics.contains("kubernetes_build_info{"), "{metrics}");
    assert!(
        metrics.contains("rest_client_requests_total{code=\"<error>\""),
        "{metrics}"
    );
    let (status, log) = running.signal_and_wait("TERM").await;
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains(secret), "{log}");
    std::fs::remove_file(kubeconfig).unwrap();
}

#[tokio::test]
async fn the_log_can_be_json_and_sigint_ends_too() {
    let master = format!("--master=http://{}", closed_port());
    let Some(cloud) = cloud() else {
        return assert_says_no_cloud(&[&master]);
    };
    let running = Running::start(&[
        &cloud,
        &master,
        "--leader-elect=false",
        "--secure-port=0",
        "--logging-format=json",
        "--allow-untagged-cloud",
    ]);
    let line = running.line_with(&["waiting for the API server"]).await;
    assert!(
        line.starts_with('{') && line.contains("\"level\":\"WARN\""),
        "{line}"
    );
    running
        .line_with(&["flag --allow-untagged-cloud is deprecated"])
        .await;
    let (status, log) = running.signal_and_wait("INT").await;
    assert_eq!(status.code(), Some(0), "{log}");
}
