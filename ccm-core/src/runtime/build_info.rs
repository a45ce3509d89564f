//! Which build this is.

/// The identity of the running program. Fields that the build did not set are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// `v0.1.0`.
    pub version: String,
    /// The first number of the version.
    pub major: &'static str,
    /// The second number of the version.
    pub minor: &'static str,
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
            major: env!("CARGO_PKG_VERSION_MAJOR"),
            minor: env!("CARGO_PKG_VERSION_MINOR"),
            commit: option_env!("CCM_GIT_COMMIT").unwrap_or_default(),
            tree_state: option_env!("CCM_GIT_TREE_STATE").unwrap_or_default(),
            date: option_env!("CCM_BUILD_DATE").unwrap_or_default(),
            platform: format!("{}/{arch}", std::env::consts::OS),
        }
    }
}
