//! Compares every answer with the AWS API descriptions that botocore carries, through botocore itself.

use std::path::PathBuf;
use std::time::Duration;

use ccm_cloudsim::{CloudSim, Options};
use tokio::net::TcpListener;
use tokio::process::Command;

/// `CCM_PYTHON` is set by `cargo xtask test`; a plain `cargo test` takes the system's Python.
#[expect(
    clippy::disallowed_methods,
    reason = "a test binary has no other way to learn it"
)]
fn python() -> String {
    std::env::var("CCM_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

#[tokio::test]
async fn every_action_answers_as_the_published_api_description_says() {
    let python = python();
    let probe = Command::new(&python)
        .args(["-c", "import botocore"])
        .output()
        .await;
    assert!(
        probe.is_ok_and(|probe| probe.status.success()),
        "{python} cannot import botocore: run `cargo xtask setup`, or set CCM_PYTHON to a Python with e2e/tests/requirements.txt"
    );
    let sim = CloudSim::new(Options::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn({
        let sim = sim.clone();
        async move {
            let stopped = async {
                let _ = stopped.await;
            };
            sim.serve(listener, stopped).await
        }
    });
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("botocore_check.py");
    let check = Command::new(&python)
        .arg(script)
        .arg(format!("http://{address}"))
        .kill_on_drop(true)
        .output();
    let check = tokio::time::timeout(Duration::from_secs(120), check).await;
    let check = check
        .expect("the check takes longer than two minutes")
        .unwrap();
    let report = String::from_utf8_lossy(&check.stdout);
    let errors = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success(), "{report}\n{errors}");
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}
