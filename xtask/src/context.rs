//! Where things are: the checkout, the cache folder outside it, and the environment. The only
//! place of xtask that reads the environment.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::process;

/// Names the checkout whose artifacts a target folder holds; a file in that folder.
const OWNER_FILE: &str = ".ccm-checkout";

/// Set by `cargo run` for the program it starts. A cargo started by us must not see them: the
/// build script of ring, among others, runs again whenever one of them differs.
const FROM_CARGO_RUN: &[&str] = &[
    "CARGO_PKG_",
    "CARGO_MANIFEST_",
    "CARGO_BIN_",
    "CARGO_CRATE_",
];

/// What every command needs to know about this checkout and this machine.
pub(crate) struct Context {
    /// The root of the checkout.
    pub(crate) root: PathBuf,
    /// `$CCM_CACHE`, else `$XDG_CACHE_HOME/ccm`, else `$HOME/.cache/ccm`.
    pub(crate) cache: PathBuf,
    /// The target folder of every cargo that we start: `$CARGO_TARGET_DIR`, else in the cache.
    pub(crate) target: PathBuf,
    env: BTreeMap<OsString, OsString>,
}

impl Context {
    /// Finds the checkout and the cache folder.
    ///
    /// # Errors
    /// Not inside a checkout, or no variable says where a cache may be.
    pub(crate) fn discover() -> Result<Self> {
        let env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        let root = find_root(&env)?;
        let cache = cache_folder(&env)?;
        let target =
            variable(&env, "CARGO_TARGET_DIR").map_or_else(|| cache.join("target"), PathBuf::from);
        Ok(Self {
            root,
            cache,
            target,
            env,
        })
    }

    /// A variable of the environment; an empty one counts as absent.
    pub(crate) fn var(&self, name: &str) -> Option<&OsString> {
        variable(&self.env, name)
    }

    /// The first program of this name on `PATH`.
    pub(crate) fn on_path(&self, program: &str) -> Option<PathBuf> {
        std::env::split_paths(self.var("PATH")?)
            .map(|folder| folder.join(program))
            .find(|file| file.is_file())
    }

    /// A cargo command at the root of the checkout, with the shared target folder.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new("cargo");
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target);
        for name in self.env.keys() {
            let text = name.to_string_lossy();
            if FROM_CARGO_RUN.iter().any(|start| text.starts_with(start)) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Makes the target folder this checkout's own. Cargo decides by file times and does not
    /// tell two checkouts apart: without this, a checkout whose files are older than the last
    /// build of another one would silently run the other one's code. Dependencies stay.
    ///
    /// # Errors
    /// The folder cannot be written or `cargo clean` fails.
    pub(crate) fn claim_target(&self) -> Result<()> {
        let owner = self.target.join(OWNER_FILE);
        let here = self.root.to_string_lossy();
        let before = match fs::read_to_string(&owner) {
            Ok(text) if text == here => return Ok(()),
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self
                .target
                .join("debug")
                .exists()
                .then(|| "cargo itself".to_owned()),
            Err(error) => return Err(error).context(format!("reading {}", owner.display())),
        };
        if let Some(before) = before {
            println!("-- the target folder was last used by {before}: dropping our own crates");
            for profile in ["dev", "release"] {
                process::run(
                    self.cargo()
                        .args(["clean", "--quiet", "--workspace"])
                        .args(["--profile", profile]),
                )?;
            }
        }
        fs::create_dir_all(&self.target)?;
        fs::write(&owner, here.as_bytes()).with_context(|| format!("writing {}", owner.display()))
    }
}

fn variable<'a>(env: &'a BTreeMap<OsString, OsString>, name: &str) -> Option<&'a OsString> {
    env.get(std::ffi::OsStr::new(name))
        .filter(|value| !value.is_empty())
}

/// Cargo names the folder of xtask; started by hand, the current folder decides.
fn find_root(env: &BTreeMap<OsString, OsString>) -> Result<PathBuf> {
    let start = match variable(env, "CARGO_MANIFEST_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => std::env::current_dir().context("reading the current folder")?,
    };
    start
        .ancestors()
        .find(|folder| folder.join("xtask/Cargo.toml").is_file())
        .map(Path::to_path_buf)
        .ok_or_else(|| {
            anyhow!(
                "{} is not inside a checkout: run cargo xtask there",
                start.display()
            )
        })
}

fn cache_folder(env: &BTreeMap<OsString, OsString>) -> Result<PathBuf> {
    let folder = if let Some(folder) = variable(env, "CCM_CACHE") {
        PathBuf::from(folder)
    } else if let Some(folder) = variable(env, "XDG_CACHE_HOME") {
        Path::new(folder).join("ccm")
    } else if let Some(folder) = variable(env, "HOME") {
        Path::new(folder).join(".cache/ccm")
    } else {
        bail!("set CCM_CACHE to a folder that may hold the cache: HOME is not set");
    };
    std::path::absolute(&folder).with_context(|| format!("cache folder {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect()
    }

    #[test]
    fn the_cache_folder_is_the_first_that_the_environment_names() {
        for (pairs, want) in [
            (
                vec![
                    ("CCM_CACHE", "/c"),
                    ("XDG_CACHE_HOME", "/x"),
                    ("HOME", "/h"),
                ],
                "/c",
            ),
            (vec![("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/x/ccm"),
            (vec![("CCM_CACHE", ""), ("HOME", "/h")], "/h/.cache/ccm"),
        ] {
            assert_eq!(cache_folder(&env(&pairs)).unwrap(), Path::new(want));
        }
    }

    #[test]
    fn without_any_folder_the_error_names_the_variable_to_set() {
        let error = cache_folder(&env(&[])).unwrap_err().to_string();
        assert!(error.contains("CCM_CACHE"), "{error}");
    }
}
