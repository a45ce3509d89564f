//! The controllers' names and which of them `--controllers` selects.

use std::{collections::BTreeSet, fmt};

/// A controller of this manager (specification: controllers §7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ControllerName {
    /// Initialises Nodes and keeps their addresses.
    Node,
    /// Removes Nodes whose machine is gone.
    NodeLifecycle,
    /// Load balancers of Services.
    Service,
    /// Routes to the pods of every Node.
    Route,
    /// Pod address ranges of Nodes.
    NodeIpam,
    /// One that only one provider has; made by [`ControllerName::own`].
    Own {
        /// The canonical name.
        name: &'static str,
        /// The older name.
        alias: &'static str,
    },
}

impl ControllerName {
    /// All that every provider may have. None is off by default.
    pub const ALL: [Self; 5] = [
        Self::Node,
        Self::NodeLifecycle,
        Self::Service,
        Self::Route,
        Self::NodeIpam,
    ];

    /// A controller that only one provider has, by its canonical name and its older one.
    pub const fn own(name: &'static str, alias: &'static str) -> Self {
        Self::Own { name, alias }
    }

    /// The canonical name: health checks and `--controllers`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "cloud-node-controller",
            Self::NodeLifecycle => "cloud-node-lifecycle-controller",
            Self::Service => "service-lb-controller",
            Self::Route => "node-route-controller",
            Self::NodeIpam => "node-ipam-controller",
            Self::Own { name, .. } => name,
        }
    }

    /// The older name: an alias in `--controllers`, and the label of the metric
    /// `running_managed_controllers`.
    pub const fn alias(self) -> &'static str {
        match self {
            Self::Node => "cloud-node",
            Self::NodeLifecycle => "cloud-node-lifecycle",
            Self::Service => "service",
            Self::Route => "route",
            Self::NodeIpam => "nodeipam",
            Self::Own { alias, .. } => alias,
        }
    }

    fn is_called(self, text: &str) -> bool {
        text == self.as_str()
            || text == self.alias()
            // Azure's manager calls it so.
            || (self == Self::NodeIpam && text == "node-ipam")
    }
}

impl fmt::Display for ControllerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What `--controllers` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selection {
    /// The controllers that may run.
    pub(super) chosen: BTreeSet<ControllerName>,
    /// Those of them that are chosen by name and not only by `*`.
    pub(super) named: BTreeSet<ControllerName>,
}

/// The controllers that a value of `--controllers` selects; the first match decides. `own` are
/// those that only the selected provider has. Unknown names are added to `errors`.
pub(super) fn select(
    items: &[String],
    own: &[ControllerName],
    errors: &mut Vec<String>,
) -> Selection {
    let known: Vec<ControllerName> = ControllerName::ALL
        .into_iter()
        .chain(own.iter().copied())
        .collect();
    let mut decided: Vec<(ControllerName, bool)> = Vec::new();
    for item in items.iter().filter(|item| *item != "*") {
        let (text, wanted) = match item.strip_prefix('-') {
            Some(text) => (text, false),
            None => (item.as_str(), true),
        };
        match known.iter().copied().find(|name| name.is_called(text)) {
            Some(name) => decided.push((name, wanted)),
            // `-*` means nothing in the Go managers either.
            None if text == "*" => {}
            None => {
                let known: Vec<_> = known.iter().map(|name| name.as_str()).collect();
                let known = known.join(", ");
                errors.push(format!(
                    "--controllers: {text:?} is not in the list of known controllers: {known}"
                ));
            }
        }
    }
    let all = items.iter().any(|item| item == "*");
    let wants = |name: &ControllerName| {
        let first = decided.iter().find(|(other, _)| other == name);
        first.map_or(all, |(_, wanted)| *wanted)
    };
    let named = decided.iter().filter(|(_, wanted)| *wanted);
    let named = named.map(|(name, _)| *name).filter(|name| wants(name));
    Selection {
        chosen: known.iter().copied().filter(wants).collect(),
        named: named.collect(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ControllerName::*, *};

    fn names(text: &str) -> (Vec<ControllerName>, Vec<String>) {
        let mut errors = Vec::new();
        let items: Vec<_> = text.split(',').map(str::to_owned).collect();
        let selected = select(&items, &[], &mut errors);
        (selected.chosen.into_iter().collect(), errors)
    }

    #[test]
    fn what_is_chosen_by_name_is_told_from_what_a_star_chooses() {
        let named = |text: &str| {
            let items: Vec<_> = text.split(',').map(str::to_owned).collect();
            select(&items, &[], &mut Vec::new()).named
        };
        assert_eq!(named("*"), BTreeSet::new());
        assert_eq!(named("*,nodeipam,-route"), [NodeIpam].into());
        assert_eq!(named("-nodeipam,nodeipam,service"), [Service].into());
    }

    /// REQ-APP-02
    #[test]
    fn the_first_match_in_the_list_decides() {
        for (text, want) in [
            ("*", ControllerName::ALL.as_slice()),
            ("*,-route", &[Node, NodeLifecycle, Service, NodeIpam]),
            (
                "*,-node-route-controller",
                &[Node, NodeLifecycle, Service, NodeIpam],
            ),
            ("-cloud-node,*", &[NodeLifecycle, Service, Route, NodeIpam]),
            ("service", &[Service]),
            ("service-lb-controller", &[Service]),
            ("service,-service", &[Service]),
            (
                "-service,service,*",
                &[Node, NodeLifecycle, Route, NodeIpam],
            ),
            ("node-ipam,node-ipam-controller", &[NodeIpam]),
            ("*,-nodeipam", &[Node, NodeLifecycle, Service, Route]),
            (
                "*,-cloud-node-lifecycle,-cloud-node-controller",
                &[Service, Route, NodeIpam],
            ),
            ("-service", &[]),
        ] {
            assert_eq!(names(text), (want.to_vec(), vec![]), "{text}");
        }
    }

    #[test]
    fn a_controller_of_the_provider_is_known_by_its_name() {
        let tagging = ControllerName::own("tagging", "tags");
        let chosen = |text: &str, own: &[ControllerName]| {
            let items: Vec<_> = text.split(',').map(str::to_owned).collect();
            let mut errors = Vec::new();
            let selected = select(&items, own, &mut errors);
            (selected, errors.len())
        };
        for (text, named) in [("*,tagging", true), ("*,tags", true), ("*", false)] {
            let (selected, errors) = chosen(text, &[tagging]);
            assert_eq!(selected.chosen.len(), ControllerName::ALL.len() + 1);
            assert_eq!(selected.named.contains(&tagging), named, "{text}");
            assert_eq!(errors, 0);
        }
        let (selected, errors) = chosen("*,-tagging", &[tagging]);
        assert!(!selected.chosen.contains(&tagging) && errors == 0);
        assert_eq!(chosen("*,tagging", &[]).1, 1, "another provider");
        assert_eq!((tagging.as_str(), tagging.alias()), ("tagging", "tags"));
    }

    /// REQ-APP-03
    #[test]
    fn an_unknown_controller_is_an_error_that_names_it() {
        for text in ["*,-nodes", "nodes"] {
            let (_, errors) = names(text);
            assert_eq!(errors.len(), 1);
            assert!(errors[0].contains("\"nodes\" is not in the list of known controllers"));
        }
    }

    /// The Go library's `IsControllerEnabled` with all its names.
    fn is_enabled(items: &[String], names: &[&str]) -> bool {
        let mut star = false;
        for item in items {
            if names.contains(&item.as_str()) {
                return true;
            }
            if item
                .strip_prefix('-')
                .is_some_and(|item| names.contains(&item))
            {
                return false;
            }
            star |= item == "*";
        }
        star
    }

    proptest! {
        /// REQ-APP-02
        #[test]
        fn any_list_is_read_as_by_the_go_managers(
            items in proptest::collection::vec(
                "-?(\\*|cloud-node(-controller)?|service|node-?ipam)|.{0,4}",
                0..6,
            ),
        ) {
            let mut errors = Vec::new();
            let selected = select(&items, &[], &mut errors);
            for name in ControllerName::ALL {
                let mut names = vec![name.as_str(), name.alias()];
                if name == NodeIpam {
                    names.push("node-ipam");
                }
                prop_assert_eq!(selected.chosen.contains(&name), is_enabled(&items, &names), "{}", name);
            }
            for error in errors {
                prop_assert!(error.starts_with("--controllers: "), "{}", error);
            }
        }
    }
}
