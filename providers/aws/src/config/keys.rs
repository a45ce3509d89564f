//! Every key of the cloud-config file, each declared once: section, name, type, default, what it
//! does and since when (specification: aws §1.2).

use std::fmt::Write as _;

/// A section of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[Global]`: everything but endpoints.
    Global,
    /// `[ServiceOverride "…"]`: endpoints.
    ServiceOverride,
}

impl Section {
    /// The name as the documentation writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Global => "Global",
            Self::ServiceOverride => "ServiceOverride",
        }
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text; of a key given twice the last one wins.
    Text,
    /// `true`, `yes`, `on`, `1` or `false`, `no`, `off`, `0`; the bare key means true.
    Bool,
    /// A whole number.
    Integer,
    /// One text a line.
    Texts,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bool => "bool",
            Self::Integer => "integer",
            Self::Texts => "text, one a line",
        }
    }
}

/// Whether a key does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does.
    Now,
    /// Its feature is not in this release: accepted, named in the log.
    Later,
    /// The Go manager never used it either: accepted.
    Never,
}

/// One key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where it stands.
    pub section: Section,
    /// Its name; compared without regard to case.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The default as the reference shows it.
    pub default: &'static str,
    /// Whether it does something.
    pub effect: Effect,
    /// Whether it is ours: the Go manager does not know it and ignores it.
    pub own: bool,
    /// What it does.
    pub doc: &'static str,
}

const fn key(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key {
        section: Section::Global,
        name,
        kind,
        default,
        effect: Effect::Now,
        own: false,
        doc,
    }
}

const fn endpoint(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key {
        section: Section::ServiceOverride,
        ..key(name, Kind::Text, default, doc)
    }
}

impl Key {
    const fn with_effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    const fn ours(self) -> Self {
        Self { own: true, ..self }
    }
}

/// All keys, in the order of the reference.
pub static KEYS: &[Key] = &[
    key(
        "Zone",
        Kind::Text,
        "",
        "An availability zone; only its region counts, and it wins over `Region`.",
    ),
    key(
        "Region",
        Kind::Text,
        "asked of the instance metadata service",
        "The region.",
    ),
    key(
        "VPC",
        Kind::Text,
        "the own instance's",
        "The cluster's VPC. Together with the cluster's identity and `SubnetID` or `RoleARN` it \
         makes the manager run outside of AWS: no own instance is looked up. On an instance it \
         does not count.",
    ),
    key(
        "SubnetID",
        Kind::Text,
        "the own instance's",
        "The subnet of load balancers when every subnet is tagged for other clusters. On an \
         instance it does not count.",
    ),
    key(
        "RouteTableID",
        Kind::Text,
        "",
        "The route table of the pod network's routes. Empty: the one table of the region that \
         carries the cluster's tag.",
    ),
    key(
        "RoleARN",
        Kind::Text,
        "",
        "A role that is assumed for all calls.",
    ),
    key(
        "SourceARN",
        Kind::Text,
        "",
        "Sent as `x-amz-source-arn` when the role is assumed, against confused deputies.",
    ),
    key(
        "KubernetesClusterTag",
        Kind::Text,
        "",
        "The cluster's identity, as value of the legacy tag `KubernetesCluster`; that tag is \
         written as well then.",
    ),
    key(
        "KubernetesClusterID",
        Kind::Text,
        "from the own instance's tags",
        "The cluster's identity: resources are tagged `kubernetes.io/cluster/<id>`.",
    ),
    key(
        "DisableSecurityGroupIngress",
        Kind::Bool,
        "false",
        "No rules are written into the Nodes' security groups.",
    ),
    key(
        "ElbSecurityGroup",
        Kind::Text,
        "",
        "The security group of all classic load balancers. It is never deleted, and its rules are \
         not touched.",
    ),
    key(
        "NodeIPFamilies",
        Kind::Texts,
        "ipv4",
        "Address families of Nodes in order, `ipv4` or `ipv6`, one line each.",
    ),
    key(
        "ClusterServiceLoadBalancerHealthProbeMode",
        Kind::Text,
        "ServiceNodePort",
        "Where the health checks of Services with the traffic policy Cluster go: \
         `ServiceNodePort`, each Service's own node port, or `Shared`, kube-proxy's health check.",
    ),
    key(
        "ClusterServiceSharedLoadBalancerHealthProbePort",
        Kind::Integer,
        "10256",
        "The port of the shared health check.",
    ),
    key(
        "ClusterServiceSharedLoadBalancerHealthProbePath",
        Kind::Text,
        "/healthz",
        "The path of the shared health check.",
    ),
    key(
        "SupportedTopologyInstanceTypePattern",
        Kind::Text,
        super::DEFAULT_TOPOLOGY_PATTERN,
        "A regular expression: Nodes of these instance types are not initialised before AWS \
         answered where they are in its network. In the file it needs double quotes and doubled \
         backslashes.",
    ),
    key(
        "NLBSecurityGroupMode",
        Kind::Text,
        "",
        "`Managed` gives new network load balancers a security group of their own.",
    ),
    key(
        "DeleteReleasedLoadBalancers",
        Kind::Bool,
        "false",
        "What becomes of our load balancer when its Service is annotated \
         `aws-load-balancer-type: external` or `nlb-ip`, which hands it to another controller: \
         `true` removes it with all its parts, as far as its tags name this Service and cluster \
         (needs `elasticloadbalancing:DescribeTags`); `false` leaves it alone and says so in a \
         Warning event.",
    )
    .ours(),
    endpoint(
        "Service",
        "required",
        "`EC2`, `Elastic Load Balancing`, `Elastic Load Balancing v2`, `KMS` or `ec2imds`. Older \
         spellings count too, with a warning.",
    ),
    endpoint(
        "Region",
        "required",
        "The region of the client that the section is for.",
    ),
    endpoint("URL", "required", "The endpoint."),
    endpoint(
        "SigningRegion",
        "required",
        "The region in the signature's scope.",
    ),
    endpoint(
        "SigningName",
        "the SDK's",
        "The service in the signature's scope.",
    ),
    endpoint("SigningMethod", "", "Accepted.").with_effect(Effect::Never),
];

/// The key of that name in the section.
pub fn find(section: Section, name: &str) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| key.section == section && key.name.eq_ignore_ascii_case(name))
}

/// The reference of all keys as a Markdown page.
pub fn config_reference() -> String {
    let mut text = String::from(
        "# AWS cloud-config\n\n<!-- Made by `cargo xtask docs` from the key table; do not edit. -->\n\n\
         The file of `--cloud-config`, in the syntax of the Go manager: sections, `key = value`, \
         `;` and `#` begin a comment, a text with a backslash, `;` or `#` needs double quotes. Names of \
         sections and keys are compared without regard to case; what is unknown is ignored with a \
         warning in the log. Keys marked *own* are not in the Go manager, which ignores them.\n",
    );
    for section in [Section::Global, Section::ServiceOverride] {
        let heading = match section {
            Section::Global => "## `[Global]`\n",
            Section::ServiceOverride => {
                "## `[ServiceOverride \"<label>\"]`\n\nOne section for each client whose endpoint \
                 is another one.\n"
            }
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n{heading}\n| Key | Type | Default | Meaning |\n|---|---|---|---|\n"
        );
        for key in KEYS.iter().filter(|key| key.section == section) {
            let _ = writeln!(text, "{}", row(key));
        }
    }
    text
}

fn row(key: &Key) -> String {
    let default = match key.default {
        "" => String::new(),
        words @ "required" => words.to_owned(),
        words if words.contains(' ') => words.to_owned(),
        value => format!("`{}`", value.replace('|', "\\|")),
    };
    let effect = match key.effect {
        Effect::Now => "",
        Effect::Later => " The feature is not in this release; a line in the log says so.",
        Effect::Never => " Without effect, as in the Go manager.",
    };
    let own = if key.own { " *own*" } else { "" };
    format!(
        "| `{}` | {} | {default} | {}{effect}{own} |",
        key.name,
        key.kind.as_str(),
        key.doc
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_is_declared_and_documented_once() {
        let names: BTreeSet<_> = KEYS
            .iter()
            .map(|key| (key.section.name(), key.name.to_ascii_lowercase()))
            .collect();
        assert_eq!(names.len(), KEYS.len());
        let text = config_reference();
        for key in KEYS {
            let row = row(key);
            assert_eq!(text.lines().filter(|line| **line == row).count(), 1);
            // Bars of values are escaped: four cells.
            assert_eq!(row.replace("\\|", "").matches('|').count(), 5, "{row}");
        }
        assert_eq!(KEYS.iter().filter(|key| key.own).count(), 1);
    }

    #[test]
    fn a_key_is_found_in_its_section_only() {
        assert_eq!(
            find(Section::Global, "vpc").map(|key| key.name),
            Some("VPC")
        );
        assert!(find(Section::ServiceOverride, "VPC").is_none());
        assert_eq!(
            find(Section::ServiceOverride, "REGION").map(|key| key.default),
            Some("required")
        );
    }
}
