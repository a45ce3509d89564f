//! Which build this is.

/// The identity of the running program. Fields that the build did not set are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// `v0.1.0`.
    pub version: String,
    /// The commit, from the variable `CCM_GIT_COMMIT` at build time.
    pub commit: &'static str,
    /// `clean` or `dirty`, from `CCM_GIT_TREE_STATE` at build time.
    pub tree_state: &'static str,
    /// From `CCM_BUILD_DATE` at build time.
    pub date: &'static str,
    /// Go's words for system and architecture: `linux/amd64`.
    pub platform: String,
}

impl BuildInfo {
    /// This program.
    pub fn current() -> Self {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self {
            version: format!("v{}", env!("CARGO_PKG_VERSION")),
            commit: option_env!("CCM_GIT_COMMIT").unwrap_or_default(),
            tree_state: option_env!("CCM_GIT_TREE_STATE").unwrap_or_default(),
            date: option_env!("CCM_BUILD_DATE").unwrap_or_default(),
            platform: format!("{}/{arch}", std::env::consts::OS),
        }
    }
    /// The same build under another version, as `--version=v1.2.3` asks for: clients that look at
    /// user agents and metrics see that one.
    #[must_use]
    pub fn reporting(mut self, version: Option<&str>) -> Self {
        if let Some(version) = version {
            self.version = version.to_owned();
        }
        self
    }

    /// The first two numbers of the version, as `kubernetes_build_info` has them.
    pub fn major_minor(&self) -> (&str, &str) {
        let mut numbers = self.version.trim_start_matches('v').splitn(3, '.');
        (
            numbers.next().unwrap_or_default(),
            numbers.next().unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_reported_when_it_is_asked_for() {
        let info = BuildInfo::current().reporting(Some("v1.37.2"));
        assert_eq!(info.version, "v1.37.2");
        assert_eq!(info.major_minor(), ("1", "37"));
        let own = BuildInfo::current();
        assert_eq!(own.clone().reporting(None), own);
    }
}
