//! Where the Go binaries are.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The API server and its store.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// kube-apiserver.
    pub kube_apiserver: PathBuf,
    /// etcd.
    pub etcd: PathBuf,
}

impl Binaries {
    /// Looks in `KUBEBUILDER_ASSETS`, then in the cache folder that `cargo xtask setup` fills.
    ///
    /// # Errors
    /// One of the two is in neither place.
    pub fn find() -> Result<Self> {
        Ok(Self {
            kube_apiserver: find("kube-apiserver")?,
            etcd: find("etcd")?,
        })
    }
}

/// The candidate of the Go library's leader election: what `CCM_GO_LEADER` names, else the one in
/// the cache folder that `cargo xtask setup` fills.
///
/// # Errors
/// It is in neither place.
pub fn go_leader() -> Result<PathBuf> {
    match variable("CCM_GO_LEADER") {
        Some(path) => Ok(PathBuf::from(path)),
        None => find("client-go-leader"),
    }
}

fn find(name: &str) -> Result<PathBuf> {
    let folders: Vec<PathBuf> = [
        variable("KUBEBUILDER_ASSETS").map(PathBuf::from),
        variable("CCM_CACHE").map(|cache| Path::new(&cache).join("bin")),
        variable("XDG_CACHE_HOME").map(|cache| Path::new(&cache).join("ccm/bin")),
        variable("HOME").map(|home| Path::new(&home).join(".cache/ccm/bin")),
    ]
    .into_iter()
    .flatten()
    .collect();
    for folder in &folders {
        let path = folder.join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    bail!("{name} is not in {folders:?}: run `cargo xtask setup`, or set KUBEBUILDER_ASSETS")
}

/// A variable of the environment, when it is set and not empty.
#[expect(
    clippy::disallowed_methods,
    reason = "test programs get their paths from the test command"
)]
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
