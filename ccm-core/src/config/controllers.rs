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
}

impl ControllerName {
    /// All of them. None is off by default.
    pub const ALL: [Self; 5] = [
        Self::Node,
        Self::NodeLifecycle,
        Self::Service,
        Self::Route,
        Self::NodeIpam,
    ];

    /// The canonical name: health checks and `--controllers`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "cloud-node-controller",
            Self::NodeLifecycle => "cloud-node-lifecycle-controller",
            Self::Service => "service-lb-controller",
            Self::Route => "node-route-controller",
            Self::NodeIpam => "node-ipam-controller",
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
        }
    }

    fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| {
            text == name.as_str()
                    || text == name.alias()
                    // Azure's manager calls it so.
                    || (*name == Self::NodeIpam && text == "node-ipam")
        })
    }
}

impl fmt::Display for ControllerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The controllers that a value of `--controllers` selects; the first match decides. Unknown
/// names are added to `errors`.
pub(super) fn select(items: &[String], errors: &mut Vec<String>) -> BTreeSet<ControllerName> {
    let mut decided: Vec<(ControllerName, bool)> = Vec::new();
    for item in items.iter().filter(|item| *item != "*") {
        let (text, wanted) = match item.strip_prefix('-') {
            Some(text) => (text, false),
            None => (item.as_str(), true),
        };
        match ControllerName::find(text) {
            Some(name) => decided.push((name, wanted)),
            // `-*` means nothing in the Go managers either.
            None if text == "*" => {}
            None => {
                let known = ControllerName::ALL.map(ControllerName::as_str).join(", ");
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
    ControllerName::ALL.into_iter().filter(wants).collect()
}

#[cfg(test)]
mod tests {
    use super::{ControllerName::*, *};

    fn names(text: &str) -> (Vec<ControllerName>, Vec<String>) {
        let mut errors = Vec::new();
        let items: Vec<_> = text.split(',').map(str::to_owned).collect();
        let selected = select(&items, &mut errors);
        (selected.into_iter().collect(), errors)
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

    /// REQ-APP-03
    #[test]
    fn an_unknown_controller_is_an_error_that_names_it() {
        for text in ["*,-nodes", "nodes"] {
            let (_, errors) = names(text);
            assert_eq!(errors.len(), 1);
            assert!(errors[0].contains("\"nodes\" is not in the list of known controllers"));
        }
    }
}
