//! Building with cargo and knowing what came out, from cargo's own messages.
//!
//! All test rings share one build: tests and programs of the whole workspace in one invocation,
//! so that the heavy crates are compiled once. The test binaries are then started directly:
//! another `cargo test -p` would select other features and could compile them again.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{context::Context, process};

/// One program that cargo built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// The package's name.
    pub(crate) package: String,
    /// The target's name, for a program its file name.
    pub(crate) target: String,
    /// The folder of the package.
    pub(crate) folder: PathBuf,
    /// The file.
    pub(crate) file: PathBuf,
    /// Whether it is a test binary.
    pub(crate) is_test: bool,
}

/// The manager and what tries it out.
pub(crate) struct Programs {
    /// `cloud-controller-manager`.
    pub(crate) manager: PathBuf,
    /// `ccm-sandbox`.
    pub(crate) sandbox: PathBuf,
}

/// Everything: the tests and programs of the workspace.
///
/// # Errors
/// It does not compile.
pub(crate) fn workspace(ctx: &Context) -> Result<Vec<Artifact>> {
    cargo_build(ctx, &["--workspace", "--all-targets"])
}

/// The manager and the sandbox, in one invocation.
///
/// # Errors
/// They do not compile.
pub(crate) fn programs(ctx: &Context) -> Result<Programs> {
    programs_in(&cargo_build(
        ctx,
        &["--package", "ccm-bin", "--package", "ccm-sandbox"],
    )?)
}

/// The manager and the sandbox among what was built.
///
/// # Errors
/// One of them is not there.
pub(crate) fn programs_in(artifacts: &[Artifact]) -> Result<Programs> {
    Ok(Programs {
        manager: program(artifacts, "cloud-controller-manager")?,
        sandbox: program(artifacts, "ccm-sandbox")?,
    })
}

/// One program among what was built.
///
/// # Errors
/// It is not there.
pub(crate) fn program(artifacts: &[Artifact], name: &str) -> Result<PathBuf> {
    artifacts
        .iter()
        .find(|artifact| !artifact.is_test && artifact.target == name)
        .map(|artifact| artifact.file.clone())
        .with_context(|| format!("cargo built no program named {name}"))
}

/// `cargo build` with these arguments.
///
/// # Errors
/// It does not compile.
pub(crate) fn cargo_build(ctx: &Context, args: &[&str]) -> Result<Vec<Artifact>> {
    ctx.claim_target()?;
    let messages = process::output(
        ctx.cargo()
            .arg("build")
            .args(args)
            .arg("--message-format=json-render-diagnostics"),
    )?;
    artifacts(&messages)
}

/// The programs that cargo's messages (one JSON object a line) tell of.
fn artifacts(messages: &str) -> Result<Vec<Artifact>> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line).context("reading cargo's messages")?;
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let (Some("compiler-artifact"), Some(file)) = (text("/reason"), text("/executable")) else {
            continue;
        };
        let (Some(id), Some(target), Some(manifest)) = (
            text("/package_id"),
            text("/target/name"),
            text("/manifest_path"),
        ) else {
            bail!("cargo's message has no package, target or manifest: {line}");
        };
        found.push(Artifact {
            package: package_name(id).to_owned(),
            target: target.to_owned(),
            folder: PathBuf::from(manifest)
                .parent()
                .map(PathBuf::from)
                .unwrap_or_default(),
            file: PathBuf::from(file),
            is_test: message.pointer("/profile/test").and_then(Value::as_bool) == Some(true),
        });
    }
    Ok(found)
}

/// `path+file:///x/ccm-core#0.1.0` and `path+file:///x/providers/aws#ccm-aws@0.1.0`.
fn package_name(id: &str) -> &str {
    let (location, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => location.rsplit('/').next().unwrap_or(location),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_names_are_read_from_both_forms_of_an_id() {
        assert_eq!(package_name("path+file:///x/ccm-core#0.1.0"), "ccm-core");
        assert_eq!(
            package_name("path+file:///x/providers/aws#ccm-aws@0.1.0"),
            "ccm-aws"
        );
    }

    #[test]
    fn only_artifacts_that_can_be_started_are_taken() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/a#0.1.0","manifest_path":"/x/a/Cargo.toml","target":{"name":"a"},"profile":{"test":false},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","package_id":"path+file:///x/a#0.1.0","manifest_path":"/x/a/Cargo.toml","target":{"name":"a"},"profile":{"test":true},"executable":"/t/a-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
            "\n",
        );
        let want = Artifact {
            package: "a".into(),
            target: "a".into(),
            folder: "/x/a".into(),
            file: "/t/a-1".into(),
            is_test: true,
        };
        assert_eq!(artifacts(messages).unwrap(), [want]);
    }
}
