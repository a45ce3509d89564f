//! Leader migration: which controllers wait for a second lock (specification: controllers §7.2).

use std::{collections::BTreeMap, fs::File, io::Read as _, path::Path};

use serde::Deserialize;
use serde_json::{Value, json};
use serde_saphyr::Spanned;

use super::{ControllerName, LeaderMigrationSettings, LockOf};

const KIND: &str = "LeaderMigrationConfiguration";
const GROUP: &str = "controllermanager.config.k8s.io";
/// The only lock there is.
const LEASES: &str = "leases";
/// What a controller's `component` must be to run here.
const COMPONENTS: [&str; 2] = ["cloud-controller-manager", "*"];
/// More than any list of controllers takes; a wrong path must not fill the memory.
const LARGEST_FILE: u64 = 1 << 20;
/// More of a line of the file is no help.
const LONGEST_QUOTE: usize = 80;

/// A migration's configuration, validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Migration {
    leader_name: String,
    /// Controller and component, in the order of the file.
    leaders: Vec<(String, String)>,
}

impl Migration {
    /// What the Go managers use without a file. Two of the names are no canonical ones and so
    /// match nothing; that is kept, so that both managers agree on what moves.
    pub(super) fn builtin() -> Self {
        let any = |name: &str| (name.to_owned(), "*".to_owned());
        Self {
            leader_name: "cloud-provider-extraction-migration".to_owned(),
            leaders: vec![
                any("route-controller"),
                any("service-controller"),
                any("cloud-node-lifecycle-controller"),
            ],
        }
    }

    /// Reads a file's text, YAML or JSON, strictly.
    ///
    /// # Errors
    /// Every problem with its line and field.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<String>> {
        let options = serde_saphyr::options! {
            // As Go: a number is no text.
            no_schema: true,
            with_snippet: false,
        };
        let read: Read = match serde_saphyr::from_str_with_options(text, options) {
            Ok(read) => read,
            Err(error) => return Err(vec![one_line(&error, text)]),
        };
        let mut problems = Vec::new();
        read.check_type(&mut problems);
        let leader_name = required(read.leader_name, "leaderName", &mut problems);
        if let Some(lock) = &read.resource_lock
            && !["", LEASES].contains(&lock.value.as_str())
        {
            problems.push(format!(
                "line {}: resourceLock must be {LEASES:?}, got {:?}",
                lock.referenced.line(),
                lock.value
            ));
        }
        let mut leaders = Vec::new();
        for (at, leader) in read.controller_leaders.into_iter().flatten().enumerate() {
            let field = |name: &str| {
                format!(
                    "line {}: controllerLeaders[{at}].{name}",
                    leader.referenced.line()
                )
            };
            let name = required(leader.value.name.clone(), &field("name"), &mut problems);
            let component = required(
                leader.value.component.clone(),
                &field("component"),
                &mut problems,
            );
            leaders.push((name, component));
        }
        if problems.is_empty() {
            Ok(Self {
                leader_name,
                leaders,
            })
        } else {
            Err(problems)
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`parse`](Self::parse), or why the file cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self, Vec<String>> {
        let mut text = String::new();
        let outcome =
            File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_string(&mut text));
        if let Err(error) = outcome {
            return Err(vec![format!(
                "cannot be read: {error}; check the path and the file's permissions"
            )]);
        }
        if u64::try_from(text.len()).is_ok_and(|length| length > LARGEST_FILE) {
            return Err(vec![format!("is larger than {LARGEST_FILE} bytes")]);
        }
        Self::parse(&text)
    }

    /// What the process goes by. Of a controller listed twice the last entry stands.
    pub(super) fn settings(&self) -> LeaderMigrationSettings {
        let lock = |component: &str| {
            if COMPONENTS.contains(&component) {
                LockOf::Migration
            } else {
                LockOf::Elsewhere
            }
        };
        let controllers: BTreeMap<_, _> = self
            .leaders
            .iter()
            .map(|(name, component)| (name.clone(), lock(component)))
            .collect();
        LeaderMigrationSettings {
            leader_name: self.leader_name.clone(),
            controllers,
        }
    }

    /// Whether the second lock has this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.leader_name == name
    }

    /// One text for each name that is an alias: aliases match nothing here.
    pub(super) fn warnings(&self) -> Vec<String> {
        let canonical = |alias: &str| {
            ControllerName::ALL
                .into_iter()
                .find(|name| name.alias() == alias)
        };
        self.leaders
            .iter()
            .filter_map(|(name, _)| Some((name, canonical(name)?)))
            .map(|(name, canonical)| {
                format!(
                    "controllerLeaders: {name:?} matches no controller; write {canonical:?}",
                    canonical = canonical.as_str()
                )
            })
            .collect()
    }

    /// As `/configz` shows it.
    pub(super) fn to_json(&self) -> Value {
        let leaders: Vec<Value> = self
            .leaders
            .iter()
            .map(|(name, component)| json!({ "name": name, "component": component }))
            .collect();
        json!({
            "leaderName": self.leader_name,
            "resourceLock": LEASES,
            "controllerLeaders": leaders,
        })
    }
}

/// The file as it is written. Unknown and repeated fields are errors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Read {
    #[serde(default)]
    api_version: Option<Spanned<String>>,
    #[serde(default)]
    kind: Option<Spanned<String>>,
    #[serde(default)]
    leader_name: Option<String>,
    #[serde(default)]
    resource_lock: Option<Spanned<String>>,
    #[serde(default)]
    controller_leaders: Option<Vec<Spanned<ReadLeader>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadLeader {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    component: Option<String>,
}

impl Read {
    fn check_type(&self, problems: &mut Vec<String>) {
        let versions = ["v1", "v1beta1", "v1alpha1"];
        let version = match &self.api_version {
            Some(text) => text
                .value
                .split_once('/')
                .filter(|(group, _)| *group == GROUP)
                .map(|(_, version)| version)
                .filter(|version| versions.contains(version)),
            None => None,
        };
        if version.is_none() {
            problems.push(format!(
                "{}apiVersion must be {GROUP}/v1, {GROUP}/v1beta1 or {GROUP}/v1alpha1, got {:?}",
                line(self.api_version.as_ref()),
                text(self.api_version.as_ref())
            ));
        }
        if text(self.kind.as_ref()) != KIND {
            problems.push(format!(
                "{}kind must be {KIND}, got {:?}",
                line(self.kind.as_ref()),
                text(self.kind.as_ref())
            ));
        }
        if version == Some("v1")
            && let Some(lock) = &self.resource_lock
        {
            problems.push(format!(
                "line {}: resourceLock is no field of {GROUP}/v1; leave it out",
                lock.referenced.line()
            ));
        }
    }
}

fn text(field: Option<&Spanned<String>>) -> &str {
    field.map(|field| field.value.as_str()).unwrap_or_default()
}

fn line(field: Option<&Spanned<String>>) -> String {
    field.map_or_else(String::new, |field| {
        format!("line {}: ", field.referenced.line())
    })
}

fn required(value: Option<String>, field: &str, problems: &mut Vec<String>) -> String {
    let value = value.unwrap_or_default();
    if value.is_empty() {
        problems.push(format!("{field} must be set"));
    }
    value
}

/// The reader's words on one line, with the line of the file that they are about: it names the
/// field.
fn one_line(error: &serde_saphyr::Error, text: &str) -> String {
    let words = error
        .without_snippet()
        .render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let number = error.location().map(|at| at.line()).unwrap_or_default();
    let about = usize::try_from(number)
        .ok()
        .and_then(|number| text.lines().nth(number.checked_sub(1)?));
    match about {
        Some(about) => {
            let about: String = about.trim().chars().take(LONGEST_QUOTE).collect();
            format!("line {number} ({about:?}): {words}")
        }
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &str = "\
apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: move
controllerLeaders:
- name: service-lb-controller
  component: cloud-controller-manager
- name: node-route-controller
  component: '*'
- name: node-ipam-controller
  component: kube-controller-manager
- name: route
  component: '*'
";

    fn problems(text: &str) -> Vec<String> {
        Migration::parse(text).unwrap_err()
    }

    /// REQ-APP-21
    #[test]
    fn the_file_decides_the_lock_of_each_controller_that_it_lists() {
        let migration = Migration::parse(FILE).unwrap();
        let settings = migration.settings();
        assert_eq!(settings.leader_name, "move");
        for (name, lock) in [
            (ControllerName::Service, LockOf::Migration),
            (ControllerName::Route, LockOf::Migration),
            (ControllerName::NodeIpam, LockOf::Elsewhere),
            (ControllerName::Node, LockOf::Main),
            (ControllerName::NodeLifecycle, LockOf::Main),
        ] {
            assert_eq!(settings.lock_of(name), lock, "{name}");
        }
        let warnings = migration.warnings();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("\"route\"") && warnings[0].contains("node-route-controller"));
    }

    /// REQ-APP-21
    #[test]
    fn without_a_file_only_the_canonical_name_of_the_built_in_list_matches() {
        let settings = Migration::builtin().settings();
        assert_eq!(settings.leader_name, "cloud-provider-extraction-migration");
        for name in ControllerName::ALL {
            let want = if name == ControllerName::NodeLifecycle {
                LockOf::Migration
            } else {
                LockOf::Main
            };
            assert_eq!(settings.lock_of(name), want, "{name}");
        }
        assert_eq!(Migration::builtin().warnings(), [""; 0]);
    }

    #[test]
    fn all_versions_are_read_and_json_too() {
        for text in [
            FILE.replace("/v1", "/v1beta1"),
            FILE.replace("/v1", "/v1alpha1\nresourceLock: leases"),
            FILE.replace("/v1", "/v1beta1\nresourceLock: ''"),
        ] {
            assert_eq!(Migration::parse(&text), Migration::parse(FILE), "{text}");
        }
        let json = r#"{"kind": "LeaderMigrationConfiguration", "leaderName": "x",
            "apiVersion": "controllermanager.config.k8s.io/v1", "controllerLeaders": null}"#;
        let migration = Migration::parse(json).unwrap();
        assert_eq!(migration.settings().leader_name, "x");
        assert_eq!(migration.leaders, []);
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_field() {
        for (from, to, want) in [
            (
                "/v1",
                "/v2",
                "line 1: apiVersion must be controllermanager.config.k8s.io/v1,",
            ),
            ("apiVersion", "#", "apiVersion must be"),
            (
                "Leader",
                "leader",
                "line 2: kind must be LeaderMigrationConfiguration, got \"leader",
            ),
            ("leaderName: move", "", "leaderName must be set"),
            (
                "leaderName: move",
                "leaderName: null",
                "leaderName must be set",
            ),
            (
                "component: kube-controller-manager",
                "component: ''",
                "line 9: controllerLeaders[2].component must be set",
            ),
            (
                "- name: node-ipam-controller\n  component",
                "- component",
                "line 9: controllerLeaders[2].name must be set",
            ),
            (
                "leaderName: move",
                "leaderName: move\nresourceLock: leases",
                "line 4: resourceLock is no field of",
            ),
            (
                "/v1",
                "/v1alpha1\nresourceLock: endpoints",
                "line 2: resourceLock must be \"leases\", got \"endpoints\"",
            ),
        ] {
            let text = FILE.replacen(from, to, 1);
            let problems = problems(&text);
            assert_eq!(problems.len(), 1, "{text}\n{problems:?}");
            assert!(problems[0].starts_with(want), "{problems:?}");
        }
    }

    #[test]
    fn decoding_is_strict() {
        for (from, to, parts) in [
            (
                "leaderName: move",
                "leaderName: move\nLeaderName: b",
                ["LeaderName", "line 4"],
            ),
            (
                "leaderName: move",
                "leaderName: move\nleaderName: b",
                ["leaderName", "line 4"],
            ),
            ("leaderName: move", "leaderName: 7", ["7", "line 3"]),
            (
                "leaderName: move",
                "leaderName: [a]",
                ["leaderName", "line 3"],
            ),
            (
                "component: '*'",
                "components: '*'",
                ["components", "line 8"],
            ),
            ("kind: ", "kind ", ["kind", "line "]),
        ] {
            let text = FILE.replacen(from, to, 1);
            let problems = problems(&text);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(!problems[0].contains('\n'), "{problems:?}");
            assert!(!problems[0].contains("DuplicateKeyPolicy"), "{problems:?}");
            for part in parts {
                assert!(problems[0].contains(part), "{part}: {problems:?}");
            }
        }
        assert!(!problems("").is_empty() && !problems("- a").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,60}") {
            let _ = Migration::parse(&text);
        }

        #[test]
        fn no_broken_file_makes_the_reader_panic(at in 0..FILE.len(), text in "[-:{}\\[\\]&*!|>'\"#%@ \n\ta]{0,6}") {
            let mut file = FILE.to_owned();
            file.insert_str(at, &text);
            let _ = Migration::parse(&file);
        }
    }
}
