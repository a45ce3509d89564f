//! Who we say we are (REQ-APP-18, specification: controllers §7.5).

use crate::runtime::BuildInfo;

/// The program's name in the user agent. Field managers are named after it.
const BINARY: &str = "cloud-controller-manager";

/// So many characters of a commit are shown, as in the Go library.
const COMMIT: usize = 7;

/// What the Go library writes for a part that the build did not set.
const UNKNOWN: &str = "unknown";

/// `<binary>/<version> (<os>/<arch>) kubernetes/<commit>/<suffix>`.
pub(super) fn user_agent(build: &BuildInfo, suffix: &str) -> String {
    let version = build.version.split('-').next().unwrap_or_default();
    let version = if version.is_empty() { UNKNOWN } else { version };
    let commit: String = build.commit.chars().take(COMMIT).collect();
    let commit = if commit.is_empty() { UNKNOWN } else { &commit };
    let platform = &build.platform;
    format!("{BINARY}/{version} ({platform}) kubernetes/{commit}/{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(version: &str, commit: &'static str) -> BuildInfo {
        BuildInfo {
            version: version.to_owned(),
            commit,
            tree_state: "",
            date: "",
            platform: "linux/arm64".to_owned(),
        }
    }

    /// REQ-APP-18
    #[test]
    fn the_user_agent_is_that_of_the_go_library() {
        for (version, commit, want) in [
            (
                "v1.2.3",
                "0123456789abcdef",
                "cloud-controller-manager/v1.2.3 (linux/arm64) kubernetes/0123456/leader-election",
            ),
            (
                "v1.2.3-rc.1+x",
                "012",
                "cloud-controller-manager/v1.2.3 (linux/arm64) kubernetes/012/leader-election",
            ),
            (
                "",
                "",
                "cloud-controller-manager/unknown (linux/arm64) kubernetes/unknown/leader-election",
            ),
        ] {
            assert_eq!(user_agent(&build(version, commit), "leader-election"), want);
        }
    }
}
