//! kube-apiserver, etcd and kubectl for the tests: from where the environment says or from the
//! system, else built from the Go modules pinned under `e2e/envtest`. Also the candidate of the Go
//! library's leader election, which is always built.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{context::Context, process, stamp};

/// Older ones lack calls that the API server makes (Debian 12 has 3.4).
const OLDEST_ETCD: (u32, u32) = (3, 5);

/// One program that is built from a Go module.
struct Program {
    name: &'static str,
    /// The folder below `e2e/envtest` whose `go.mod` pins it.
    folder: &'static str,
    module: &'static str,
    package: &'static str,
    /// Our own source files in that folder.
    sources: &'static [&'static str],
    /// What makes it print its version…
    version_args: &'static [&'static str],
    /// …and what it prints before the number, in the first line.
    version_line: &'static str,
    about: &'static str,
}

const KUBE_APISERVER: Program = Program {
    name: "kube-apiserver",
    folder: "kubernetes",
    module: "k8s.io/kubernetes",
    package: "k8s.io/kubernetes/cmd/kube-apiserver",
    sources: &[],
    version_args: &["--version"],
    version_line: "Kubernetes v",
    about: "about 5 min on 2 cores",
};

const ETCD: Program = Program {
    name: "etcd",
    folder: "etcd",
    module: "go.etcd.io/etcd/server/v3",
    package: "go.etcd.io/etcd/server/v3",
    sources: &[],
    version_args: &["--version"],
    version_line: "etcd Version: ",
    about: "about 1 min on 2 cores",
};

const KUBECTL: Program = Program {
    name: "kubectl",
    folder: "kubernetes",
    module: "k8s.io/kubernetes",
    package: "k8s.io/kubernetes/cmd/kubectl",
    sources: &[],
    version_args: &["version", "--client"],
    version_line: "Client Version: v",
    about: "about 1 min on 2 cores after kube-apiserver",
};

const LEADER: Program = Program {
    name: "client-go-leader",
    folder: "leader",
    module: "k8s.io/client-go",
    package: ".",
    sources: &["main.go"],
    version_args: &["--version"],
    version_line: "client-go v",
    about: "about 1 min on 2 cores",
};

/// Older ones ask for another form of discovery.
const OLDEST_KUBECTL: (u32, u32) = (1, 30);

/// The folder to put before `PATH` for tests that call kubectl: none if the system has one that is
/// new enough, else the cache's, where it is built.
///
/// # Errors
/// Go is missing, or the build fails.
pub(crate) fn kubectl(ctx: &Context) -> Result<Option<PathBuf>> {
    let system = ctx
        .on_path(KUBECTL.name)
        .and_then(|file| version_of(&file, &KUBECTL));
    if system.is_some_and(|version| is_new_enough(&version, OLDEST_KUBECTL)) {
        return Ok(None);
    }
    let folder = ctx.cache.join("kubectl");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    built(ctx, &KUBECTL, &folder)?;
    Ok(Some(folder))
}

/// The folder with kube-apiserver and etcd. `KUBEBUILDER_ASSETS` comes first. Otherwise it is the
/// cache's: kube-apiserver is built there, and etcd too unless one on `PATH` is new enough, which
/// is then linked.
///
/// # Errors
/// A named file is missing, Go is missing, or a build fails.
pub(crate) fn assets(ctx: &Context) -> Result<PathBuf> {
    if let Some(folder) = ctx.var("KUBEBUILDER_ASSETS").map(PathBuf::from) {
        has_both(&folder)?;
        return Ok(folder);
    }
    let folder = ctx.cache.join("bin");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    built(ctx, &KUBE_APISERVER, &folder)?;
    match system_etcd(ctx) {
        Some(system) => link(&system, &folder)?,
        None => built(ctx, &ETCD, &folder)?,
    }
    Ok(folder)
}

/// The candidate of the Go library's leader election, for the test that it and ours exclude each
/// other.
///
/// # Errors
/// Go is missing, or the build fails.
pub(crate) fn leader(ctx: &Context) -> Result<PathBuf> {
    let folder = ctx.cache.join("bin");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    built(ctx, &LEADER, &folder)?;
    Ok(folder.join(LEADER.name))
}

fn has_both(folder: &Path) -> Result<()> {
    for program in [&KUBE_APISERVER, &ETCD] {
        if !folder.join(program.name).is_file() {
            bail!(
                "KUBEBUILDER_ASSETS is {}, but there is no {} in it: add it or unset the variable",
                folder.display(),
                program.name
            );
        }
    }
    Ok(())
}

/// Puts the system's etcd beside the built API server.
fn link(system: &Path, folder: &Path) -> Result<()> {
    let place = folder.join(ETCD.name);
    if fs::read_link(&place).is_ok_and(|target| target == system) {
        return Ok(());
    }
    println!("-- etcd: using {}", system.display());
    for old in [place.clone(), mark(folder, &ETCD)] {
        if old.symlink_metadata().is_ok() {
            fs::remove_file(&old).with_context(|| format!("removing {}", old.display()))?;
        }
    }
    symlink(system, &place).with_context(|| format!("linking {}", place.display()))
}

/// The stamp of a program that we built.
fn mark(folder: &Path, program: &Program) -> PathBuf {
    folder.join(format!("{}.stamp", program.name))
}

fn system_etcd(ctx: &Context) -> Option<PathBuf> {
    let file = ctx.on_path(ETCD.name)?;
    let version = version_of(&file, &ETCD)?;
    is_new_enough(&version, OLDEST_ETCD).then_some(file)
}

fn is_new_enough(version: &str, oldest: (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= oldest,
        _ => false,
    }
}

/// The number that the binary itself prints, without the leading `v`.
fn version_of(file: &Path, program: &Program) -> Option<String> {
    let output = Command::new(file)
        .args(program.version_args)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?;
    Some(line.strip_prefix(program.version_line)?.trim().to_owned())
}

/// The version that a `go.mod` pins for a module, without the leading `v`.
fn pinned(go_mod: &str, module: &str) -> Option<String> {
    go_mod
        .lines()
        .filter(|line| !line.contains("=>"))
        .find_map(|line| {
            let mut words = line
                .split_whitespace()
                .skip_while(|word| *word == "require");
            (words.next() == Some(module)).then(|| words.next())?
        })
        .and_then(|version| version.strip_prefix('v'))
        .map(str::to_owned)
}

/// What the linker writes into the binary. Without a version, clients see `v0.0.0-master` and
/// switch features off.
fn linker_flags(program: &Program, version: &str) -> String {
    let mut flags = "-s -w".to_owned();
    if program.module == KUBE_APISERVER.module {
        let mut numbers = version.split('.');
        let major = numbers.next().unwrap_or_default();
        let minor = numbers.next().unwrap_or_default();
        for (name, value) in [
            ("gitVersion", format!("v{version}").as_str()),
            ("gitMajor", major),
            ("gitMinor", minor),
        ] {
            flags.push_str(&format!(" -X k8s.io/component-base/version.{name}={value}"));
        }
    }
    flags
}

/// Makes our own build in this folder if it is missing or its pin has changed.
fn built(ctx: &Context, program: &Program, folder: &Path) -> Result<()> {
    let source = ctx.root.join("e2e/envtest").join(program.folder);
    let (go_mod, go_sum) = (source.join("go.mod"), source.join("go.sum"));
    let text =
        fs::read_to_string(&go_mod).with_context(|| format!("reading {}", go_mod.display()))?;
    let Some(version) = pinned(&text, program.module) else {
        bail!("{} pins no {}", go_mod.display(), program.module);
    };
    let flags = linker_flags(program, &version);
    let sources = program.sources.iter().map(|name| source.join(name));
    let files: Vec<PathBuf> = [go_mod.clone(), go_sum]
        .into_iter()
        .chain(sources)
        .collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let want = stamp::of_files(&files, flags.as_bytes())?;
    let binary = folder.join(program.name);
    let mark = mark(folder, program);
    let is_pinned = || version_of(&binary, program).as_deref() == Some(version.as_str());
    if stamp::matches(&mark, &want) && is_pinned() {
        return Ok(());
    }
    if !mark.exists() && program.sources.is_empty() && is_pinned() {
        println!(
            "-- {} {version}: taking over {}",
            program.name,
            binary.display()
        );
    } else {
        process::step(
            &format!(
                "{} {version} from its Go module ({})",
                program.name, program.about
            ),
            || build(ctx, program, &source, &flags, &binary),
        )?;
        if !is_pinned() {
            bail!(
                "{} does not say that it is {version}: look at {}",
                binary.display(),
                go_mod.display()
            );
        }
    }
    stamp::write(&mark, &want)
}

fn build(
    ctx: &Context,
    program: &Program,
    source: &Path,
    flags: &str,
    binary: &Path,
) -> Result<()> {
    let Some(go) = ctx.on_path("go") else {
        bail!(
            "go is not on PATH, it builds {}: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd",
            program.name
        );
    };
    // Under another name first: a build that was stopped leaves no half binary behind.
    let half = binary.with_extension(format!("{}.tmp", std::process::id()));
    let result = process::run(
        Command::new(go)
            .current_dir(source)
            .args(["build", "-trimpath", "-ldflags", flags, "-o"])
            .args([half.as_os_str(), OsStr::new(program.package)]),
    )
    .and_then(|()| {
        fs::rename(&half, binary).with_context(|| format!("writing {}", binary.display()))
    });
    if result.is_err() && half.exists() {
        fs::remove_file(&half)?;
    }
    result.with_context(|| format!("building {}", program.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pin_is_read_from_the_require_lines_only() {
        let text = "module x\n\nrequire (\n\tk8s.io/api v0.37.2 // indirect\n\tk8s.io/kubernetes v1.37.2 // indirect\n)\n\nreplace k8s.io/api => k8s.io/api v0.1.0\n";
        assert_eq!(pinned(text, "k8s.io/kubernetes").as_deref(), Some("1.37.2"));
        assert_eq!(pinned(text, "k8s.io/api").as_deref(), Some("0.37.2"));
        assert_eq!(pinned(text, "k8s.io/none"), None);
        let single = "require go.etcd.io/etcd/server/v3 v3.7.3\n";
        assert_eq!(pinned(single, ETCD.module).as_deref(), Some("3.7.3"));
    }

    #[test]
    fn debians_etcd_is_too_old_and_ours_is_not() {
        for (version, want) in [
            ("3.4.23", false),
            ("3.5.0", true),
            ("4.0", true),
            ("x", false),
        ] {
            assert_eq!(is_new_enough(version, OLDEST_ETCD), want, "{version}");
        }
    }

    #[test]
    fn the_api_server_is_told_its_version() {
        let flags = linker_flags(&KUBE_APISERVER, "1.37.2");
        assert!(flags.contains("version.gitVersion=v1.37.2"), "{flags}");
        assert!(flags.ends_with("version.gitMinor=37"), "{flags}");
        assert_eq!(linker_flags(&ETCD, "3.7.3"), "-s -w");
        assert_eq!(linker_flags(&LEADER, "0.37.2"), "-s -w");
    }

    #[test]
    fn a_folder_without_the_programs_is_refused_by_name() {
        let error = has_both(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("KUBEBUILDER_ASSETS"), "{error}");
        assert!(error.contains("kube-apiserver"), "{error}");
    }
}
