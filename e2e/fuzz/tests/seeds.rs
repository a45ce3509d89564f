//! Every body runs over its seeds and over mutations of them, and none is forgotten.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed step is a failed test"
)]

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use ccm_fuzz::{TARGETS, Target};

/// Mutations of the seeds of one target: enough to notice a parser that trusts its input, and
/// quick.
const MUTATIONS: usize = 200;

/// What parsers give a meaning to.
const TOKENS: &[&str] = &[
    "",
    "\0",
    "\n",
    "\t",
    " ",
    "\u{a0}",
    "\u{feff}",
    "é",
    "%",
    "-",
    "--",
    "_",
    "=",
    ":",
    ": ",
    ",",
    ",,",
    ";",
    "#",
    ".",
    "..",
    "/",
    "//",
    "://",
    "\"",
    "\\",
    "[",
    "]",
    "{",
    "}",
    "&",
    "*",
    "!",
    "|",
    "+",
    "0",
    "00",
    "0x",
    "1e9",
    "99999999999999999999",
    "18446744073709551615",
    "true",
    "i-",
    "::",
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            path.file_stem().unwrap().to_str().unwrap().to_owned()
        })
        .collect()
}

/// Names and contents, in the order of the names.
fn seeds(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = folder().join("corpus").join(target.name);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("no seeds in {}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| (path.display().to_string(), fs::read(path).unwrap()))
        .collect()
}

fn run(target: &Target, name: &str, data: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.body)(data)));
    assert!(
        outcome.is_ok(),
        "{} breaks on {name}:\n{:?}",
        target.name,
        String::from_utf8_lossy(data)
    );
}

/// A few cuts, doublings and insertions.
fn mutated(random: &mut fastrand::Rng, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..random.usize(1..4) {
        let start = random.usize(0..=data.len());
        let end = random.usize(start..=data.len()).min(start + 12);
        match random.u8(0..5) {
            0 => drop(data.drain(start..end)),
            1 => data.truncate(start),
            2 => {
                let part = data[start..end].to_vec();
                data.splice(start..start, part);
            }
            3 => {
                let from = random.usize(0..=other.len());
                data.splice(start..end, other[from..].iter().copied());
            }
            _ => {
                let token = TOKENS[random.usize(0..TOKENS.len())];
                data.splice(start..end, token.bytes());
            }
        }
    }
    data
}

#[test]
fn no_seed_breaks_a_law() {
    for target in TARGETS {
        let seeds = seeds(target);
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for (name, data) in seeds {
            run(target, &name, &data);
        }
        run(target, "nothing", b"");
        run(target, "what is no text", &[0xff, 0xfe, 0x00, 0xc3, 0x28]);
    }
}

#[test]
fn no_mutation_of_a_seed_breaks_a_law() {
    for target in TARGETS {
        let seeds = seeds(target);
        // The same ones in each run: what is found here is found again.
        let mut random = fastrand::Rng::with_seed(7);
        for number in 0..MUTATIONS {
            let (name, seed) = &seeds[random.usize(0..seeds.len())];
            let (_, other) = &seeds[random.usize(0..seeds.len())];
            let data = mutated(&mut random, seed, other);
            run(target, &format!("mutation {number} of {name}"), &data);
        }
    }
}

#[test]
fn every_body_has_its_target_and_its_seeds() {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let folder = folder();
    assert_eq!(names_in(&folder.join("corpus")), names);
    assert_eq!(names_in(&folder.join("targets/fuzz_targets")), names);

    let manifest = fs::read_to_string(folder.join("targets/Cargo.toml")).unwrap();
    assert_eq!(manifest.matches("[[bin]]").count(), names.len());
    let bodies = ["aws", "core", "pod_ranges", "serving"]
        .map(|file| fs::read_to_string(folder.join(format!("src/{file}.rs"))).unwrap())
        .concat();
    assert_eq!(bodies.matches("\npub fn fuzz_").count(), names.len());
    for name in &names {
        assert!(
            manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")),
            "targets/Cargo.toml has no [[bin]] for {name}"
        );
        let target = folder.join(format!("targets/fuzz_targets/{name}.rs"));
        let target = fs::read_to_string(target).unwrap();
        assert!(
            target.contains(&format!("ccm_fuzz::fuzz_{name}(data)")),
            "the target {name} runs another body:\n{target}"
        );
        assert!(
            bodies.contains(&format!("\npub fn fuzz_{name}(")),
            "no body for {name}"
        );
    }
}
