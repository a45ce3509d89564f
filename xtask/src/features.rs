//! One feature graph: the heavy SDK crates, and all below them, must have the same features
//! whatever part of the workspace is built. Otherwise `cargo test -p` after a full build compiles
//! aws-sdk-ec2 again, which takes minutes (docs/adr/0004).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{context::Context, process};

/// The crate that must not be compiled twice.
const HEAVY: &str = "aws-sdk-ec2";

/// What is built and tested day by day: the packages, and whether tests are built.
const SELECTIONS: &[(&[&str], bool)] = &[
    (&["ccm-bin", "ccm-sandbox"], false),
    (&["ccm-bench"], false),
    (&["ccm-aws"], true),
    (&["ccm-bin"], true),
    (&["ccm-sim"], true),
];

/// A package with its version, and the feature sets it is built with (more than one if a build
/// script or macro uses it as well).
type Features = BTreeMap<String, BTreeSet<String>>;

/// Compares each usual selection with the whole workspace.
///
/// # Errors
/// A crate at or below the SDK has other features in a selection: all such are named.
pub(crate) fn check(ctx: &Context) -> Result<()> {
    let metadata = process::output(ctx.cargo().args(["metadata", "--format-version=1"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("reading cargo metadata")?;
    let below = below_heavy(&metadata);
    let whole = features(ctx, &["--workspace"], true)?;
    let mut differences = Vec::new();
    for (packages, with_tests) in SELECTIONS {
        let args: Vec<&str> = packages
            .iter()
            .flat_map(|name| ["--package", name])
            .collect();
        let part = features(ctx, &args, *with_tests)?;
        for difference in differing(&below, &whole, &part) {
            differences.push(format!("{}: {difference}", packages.join(", ")));
        }
    }
    if !differences.is_empty() {
        bail!(
            "features below {HEAVY} depend on what is built (see docs/adr/0004):\n{}",
            differences.join("\n")
        );
    }
    println!(
        "one feature graph: {} crates from {HEAVY} down, {} selections",
        below.len(),
        SELECTIONS.len()
    );
    Ok(())
}

/// `name vVERSION` of the heavy crate and of all that it is built from.
fn below_heavy(metadata: &Value) -> BTreeSet<String> {
    let list = |pointer: &str| {
        metadata
            .pointer(pointer)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    };
    let text = |value: &Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let names: BTreeMap<String, (String, String)> = list("/packages")
        .iter()
        .map(|package| {
            let shown = format!("{} v{}", text(package, "name"), text(package, "version"));
            (text(package, "id"), (text(package, "name"), shown))
        })
        .collect();
    let edges: BTreeMap<String, Vec<String>> = list("/resolve/nodes")
        .iter()
        .map(|node| (text(node, "id"), needed(node)))
        .collect();
    let mut todo: Vec<String> = names
        .iter()
        .filter(|(_, (name, _))| name == HEAVY)
        .map(|(id, _)| id.clone())
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        if seen.insert(id.clone()) {
            todo.extend(edges.get(&id).into_iter().flatten().cloned());
        }
    }
    seen.iter()
        .filter_map(|id| names.get(id))
        .map(|(_, shown)| shown.clone())
        .collect()
}

/// The packages that a node of cargo's graph needs to be built; not those of its tests.
fn needed(node: &Value) -> Vec<String> {
    let list = |value: &Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    list(node, "deps")
        .iter()
        .filter(|dep| {
            list(dep, "dep_kinds")
                .iter()
                .any(|kind| kind.get("kind").and_then(Value::as_str) != Some("dev"))
        })
        .filter_map(|dep| dep.get("pkg").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
}

fn features(ctx: &Context, selection: &[&str], with_tests: bool) -> Result<Features> {
    let edges = if with_tests {
        "normal,build,dev"
    } else {
        "normal,build"
    };
    let text = process::output(
        ctx.cargo()
            .arg("tree")
            .args(selection)
            .args(["--edges", edges, "--prefix", "none", "--format", "{p}\t{f}"]),
    )?;
    Ok(parse_tree(&text))
}

fn parse_tree(text: &str) -> Features {
    let mut found = Features::new();
    for (package, features) in text.lines().filter_map(|line| line.split_once('\t')) {
        let name: Vec<&str> = package.split(' ').take(2).collect();
        let features = features.trim_end_matches(" (*)").to_owned();
        found.entry(name.join(" ")).or_default().insert(features);
    }
    found
}

fn differing(below: &BTreeSet<String>, whole: &Features, part: &Features) -> Vec<String> {
    let mut lines = Vec::new();
    for package in below {
        let (Some(want), Some(have)) = (whole.get(package), part.get(package)) else {
            continue;
        };
        for features in have.difference(want) {
            lines.push(format!(
                "{package} has [{features}], in the workspace {want:?}"
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_only_a_part_has_or_lacks_is_reported() {
        let below = BTreeSet::from(["tokio v1.0.0".to_owned()]);
        let whole = parse_tree("tokio v1.0.0\tnet,test-util\nother v1.0.0\ta\n");
        let same = parse_tree("tokio v1.0.0\tnet,test-util (*)\nother v1.0.0\tb\n");
        let less = parse_tree("tokio v1.0.0\tnet\n");
        assert!(differing(&below, &whole, &same).is_empty());
        assert_eq!(differing(&below, &whole, &less).len(), 1);
    }

    #[test]
    fn what_only_tests_of_a_crate_need_is_not_below_it() {
        let metadata: Value = serde_json::from_str(
            r#"{"packages":[
                {"id":"1","name":"aws-sdk-ec2","version":"1.0.0"},
                {"id":"2","name":"bytes","version":"1.0.0"},
                {"id":"3","name":"proptest","version":"1.0.0"}],
              "resolve":{"nodes":[{"id":"1","deps":[
                {"pkg":"2","dep_kinds":[{"kind":null}]},
                {"pkg":"3","dep_kinds":[{"kind":"dev"}]}]}]}}"#,
        )
        .unwrap();
        let want = ["aws-sdk-ec2 v1.0.0", "bytes v1.0.0"].map(str::to_owned);
        assert_eq!(below_heavy(&metadata), BTreeSet::from(want));
    }
}
