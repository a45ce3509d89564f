//! Every annotation that this provider reads, each declared once: key, type, default, which load
//! balancers it concerns, documentation and parser (specification: aws §4.3).
//!
//! Keys, defaults and error texts must not change: users' manifests and alerts depend on them.

use std::{collections::BTreeMap, fmt::Write as _};

use ccm_core::{
    cloud::{CloudError, CloudResult},
    kube::Service,
};
use ipnet::IpNet;

mod parse;

pub use parse::{Flavour, PortSet};

/// Which load balancers an annotation concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancers {
    /// Decides which kind it is.
    Any,
    /// Classic load balancers only.
    Classic,
    /// Network load balancers only.
    Network,
    /// Both kinds.
    Both,
}

impl Balancers {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "–",
            Self::Classic => "classic",
            Self::Network => "network",
            Self::Both => "both",
        }
    }
}

/// One annotation whose value is a `T`.
#[derive(Debug)]
pub struct Annotation<T> {
    /// The whole key.
    pub key: &'static str,
    /// The type as the reference names it.
    pub kind: &'static str,
    /// The default as the reference shows it.
    pub default: &'static str,
    /// Which load balancers it concerns.
    pub balancers: Balancers,
    /// What it does, for the reference.
    pub doc: &'static str,
    /// Reads a value that is present. `None` when the value counts as absent.
    parse: fn(&'static str, &str) -> CloudResult<Option<T>>,
}

impl<T> Annotation<T> {
    /// The value on this Service; `None` when absent.
    ///
    /// # Errors
    /// Class `Invalid` when the value does not parse.
    pub fn get(&self, service: &Service) -> CloudResult<Option<T>> {
        service
            .annotation(self.key)
            .map_or(Ok(None), |value| (self.parse)(self.key, value))
    }

    /// Whether the Service carries the key at all, with whatever value.
    pub fn is_present(&self, service: &Service) -> bool {
        service.annotation(self.key).is_some()
    }
}

/// An annotation as a line of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The whole key.
    pub key: &'static str,
    /// The type.
    pub kind: &'static str,
    /// The default.
    pub default: &'static str,
    /// Which load balancers it concerns.
    pub balancers: Balancers,
    /// What it does.
    pub doc: &'static str,
}

macro_rules! annotations {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $key:literal, $kind:literal, $default:literal, $balancers:ident, $parse:expr;)+) => {
        $($(#[doc = $doc])+
        pub static $name: Annotation<$type> = Annotation {
            key: $key,
            kind: $kind,
            default: $default,
            balancers: Balancers::$balancers,
            doc: concat!($($doc),+),
            parse: $parse,
        };)+

        /// All annotations, in the order of the reference.
        pub static ALL: &[Row] = &[$(Row {
            key: $key,
            kind: $kind,
            default: $default,
            balancers: Balancers::$balancers,
            doc: concat!($($doc),+),
        }),+];
    };
}

annotations! {
    /// Who makes the load balancer: exactly `nlb` for a network load balancer, exactly `external` or `nlb-ip` for another controller, everything else for a classic one. May not change while a load balancer exists.
    TYPE: Flavour = "service.beta.kubernetes.io/aws-load-balancer-type", "text", "classic", Any, parse::flavour;
    /// Whether the load balancer has private addresses only. Empty and `false` mean internet-facing; every other text means internal. Read at creation only.
    INTERNAL: bool = "service.beta.kubernetes.io/aws-load-balancer-internal", "text", "false", Both, parse::internal;
    /// Subnets by id (`subnet-…`) or by Name tag; replaces the discovery by tags.
    SUBNETS: Vec<String> = "service.beta.kubernetes.io/aws-load-balancer-subnets", "list", "discovered by tags", Both, parse::list;
    /// Security groups of the load balancer instead of one made for it; their rules are not touched. For a network load balancer only with `NLBSecurityGroupMode = Managed`.
    SECURITY_GROUPS: Vec<String> = "service.beta.kubernetes.io/aws-load-balancer-security-groups", "list", "one is made", Both, parse::list;
    /// Security groups in addition. Not supported by network load balancers: its presence is an error there.
    EXTRA_SECURITY_GROUPS: Vec<String> = "service.beta.kubernetes.io/aws-load-balancer-extra-security-groups", "list", "none", Classic, parse::list;
    /// Tags for everything that is made for the Service.
    ADDITIONAL_RESOURCE_TAGS: BTreeMap<String, String> = "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags", "key=value list", "none", Both, parse::pairs;
    /// ARN of the certificate; makes the selected ports TLS listeners.
    SSL_CERT: String = "service.beta.kubernetes.io/aws-load-balancer-ssl-cert", "text", "none", Both, parse::text;
    /// Ports that use the certificate, by number or name; empty and `*` mean all.
    SSL_PORTS: PortSet = "service.beta.kubernetes.io/aws-load-balancer-ssl-ports", "port list", "*", Both, parse::port_set;
    /// Name of the predefined TLS policy.
    SSL_NEGOTIATION_POLICY: String = "service.beta.kubernetes.io/aws-load-balancer-ssl-negotiation-policy", "text", "the cloud's default", Both, parse::text;
    /// Protocol between load balancer and Node. A network load balancer knows only `ssl` (TLS to the Node).
    BACKEND_PROTOCOL: String = "service.beta.kubernetes.io/aws-load-balancer-backend-protocol", "text", "by certificate", Both, parse::text;
    /// `*` turns the PROXY protocol on. Ignored by network load balancers.
    PROXY_PROTOCOL: String = "service.beta.kubernetes.io/aws-load-balancer-proxy-protocol", "text", "off", Classic, parse::proxy_protocol;
    /// Whether access logs are written.
    ACCESS_LOG_ENABLED: bool = "service.beta.kubernetes.io/aws-load-balancer-access-log-enabled", "bool", "false", Both, parse::boolean;
    /// Minutes between access log files, 5 or 60.
    ACCESS_LOG_EMIT_INTERVAL: i32 = "service.beta.kubernetes.io/aws-load-balancer-access-log-emit-interval", "integer", "the cloud's default", Classic, parse::integer;
    /// Bucket of the access logs.
    ACCESS_LOG_S3_BUCKET_NAME: String = "service.beta.kubernetes.io/aws-load-balancer-access-log-s3-bucket-name", "text", "none", Both, parse::text;
    /// Prefix in the bucket.
    ACCESS_LOG_S3_BUCKET_PREFIX: String = "service.beta.kubernetes.io/aws-load-balancer-access-log-s3-bucket-prefix", "text", "none", Both, parse::text;
    /// Whether open connections of removed Nodes may end.
    CONNECTION_DRAINING_ENABLED: bool = "service.beta.kubernetes.io/aws-load-balancer-connection-draining-enabled", "bool", "false", Classic, parse::boolean;
    /// Seconds that open connections get.
    CONNECTION_DRAINING_TIMEOUT: i32 = "service.beta.kubernetes.io/aws-load-balancer-connection-draining-timeout", "integer", "the cloud's default", Classic, parse::integer;
    /// Seconds after which an idle connection is closed.
    CONNECTION_IDLE_TIMEOUT: i32 = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout", "integer", "60", Classic, parse::integer;
    /// Whether each zone's load balancer node sends to the Nodes of all zones.
    CROSS_ZONE_LOAD_BALANCING_ENABLED: bool = "service.beta.kubernetes.io/aws-load-balancer-cross-zone-load-balancing-enabled", "bool", "false", Both, parse::boolean;
    /// Protocol of the health check, in any case: TCP, HTTP or HTTPS, for a classic load balancer SSL as well.
    HEALTHCHECK_PROTOCOL: String = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-protocol", "text", "TCP, classic with `backend-protocol` https or ssl: SSL; HTTP for the traffic policy Local", Both, parse::text;
    /// Port of the health check: a number or `traffic-port`.
    HEALTHCHECK_PORT: String = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-port", "text", "traffic-port, or the health check node port for the traffic policy Local", Both, parse::text;
    /// Path of an HTTP or HTTPS health check.
    HEALTHCHECK_PATH: String = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-path", "text", "/, or /healthz for the traffic policy Local", Both, parse::text;
    /// Good checks until a Node counts as healthy.
    HEALTHCHECK_HEALTHY_THRESHOLD: i32 = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-healthy-threshold", "integer", "classic: 2; network: 3, or 2 for the traffic policy Local", Both, parse::health_number;
    /// Bad checks until a Node counts as unhealthy.
    HEALTHCHECK_UNHEALTHY_THRESHOLD: i32 = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-unhealthy-threshold", "integer", "classic: 6; network: 3, or 2 for the traffic policy Local", Both, parse::health_number;
    /// Seconds a check may take.
    HEALTHCHECK_TIMEOUT: i32 = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-timeout", "integer", "classic: 5; network: 10", Both, parse::health_number;
    /// Seconds between checks.
    HEALTHCHECK_INTERVAL: i32 = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-interval", "integer", "classic: 10; network: 30, or 10 for the traffic policy Local", Both, parse::health_number;
    /// Attributes of the target groups: `preserve_client_ip.enabled` and `proxy_protocol_v2.enabled`, each `true` or `false`, and `deregistration_delay.timeout_seconds`, 0 to 3600. Its presence on a classic load balancer is an error.
    TARGET_GROUP_ATTRIBUTES: BTreeMap<String, String> = "service.beta.kubernetes.io/aws-load-balancer-target-group-attributes", "key=value list", "the cloud's default", Network, parse::pairs;
    /// Elastic IP allocations, one a subnet, separated by commas without blanks. Read at creation only.
    EIP_ALLOCATIONS: Vec<String> = "service.beta.kubernetes.io/aws-load-balancer-eip-allocations", "list", "none", Network, parse::words;
    /// Private addresses, one a subnet, separated by commas without blanks. Read at creation only.
    PRIVATE_IPV4_ADDRESSES: Vec<String> = "service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses", "list", "none", Network, parse::words;
    /// Only Nodes with all these labels are targets; a key without value asks for the label alone.
    TARGET_NODE_LABELS: BTreeMap<String, String> = "service.beta.kubernetes.io/aws-load-balancer-target-node-labels", "key=value list", "all Nodes", Both, parse::pairs;
    /// What another controller registers as targets of an `external` load balancer. Not read by this manager.
    NLB_TARGET_TYPE: String = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type", "text", "none", Any, parse::text;
    /// Client ranges that may reach the load balancer, when `spec.loadBalancerSourceRanges` is empty.
    SOURCE_RANGES: Vec<IpNet> = "service.beta.kubernetes.io/load-balancer-source-ranges", "CIDR list", "0.0.0.0/0", Both, parse::source_ranges;
}

/// Who makes the Service's load balancer.
pub fn flavour(service: &Service) -> Flavour {
    service
        .annotation(TYPE.key)
        .map_or(Flavour::Classic, Flavour::of)
}

/// The client ranges: those of the spec, else those of the annotation, else everyone. Normalised,
/// without duplicates, IPv4 first.
///
/// # Errors
/// Class `Invalid`: a range that does not parse; the text names the field or the annotation.
pub fn source_ranges(service: &Service) -> CloudResult<Vec<IpNet>> {
    match service.spec.load_balancer_source_ranges.as_deref() {
        Some(ranges) if !ranges.is_empty() => parse::spec_source_ranges(ranges),
        _ => Ok(SOURCE_RANGES.get(service)?.unwrap_or_else(parse::everyone)),
    }
}

/// The reference of all annotations as a Markdown page.
pub fn reference() -> String {
    let mut text = String::from(
        "# AWS annotations\n\n<!-- Made by `cargo xtask docs` from the annotation table; do not edit. -->\n\n\
         Annotations of Services, with the keys, defaults and meanings of the Go manager. *classic* \
         and *network* name the load balancers that an annotation concerns.\n\n| Annotation | Load balancer | Type | Default | Effect |\n|---|---|---|---|---|\n",
    );
    for row in ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            row.key,
            row.balancers.as_str(),
            row.kind,
            row.default,
            row.doc.trim()
        );
    }
    text
}

/// The text of every annotation value that does not parse as its type: the Go manager's, and behind
/// it what is accepted.
fn unparsable(key: &str, value: &str, accepted: &str) -> CloudError {
    CloudError::invalid(format!(
        "error parsing service annotation: {key}={value} (accepted: {accepted})"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(pairs: &[(&Annotation<()>, &str)]) -> Service {
        let mut service = Service::default();
        service.metadata.annotations = Some(
            pairs
                .iter()
                .map(|(a, v)| (a.key.to_owned(), (*v).to_owned()))
                .collect(),
        );
        service
    }

    fn with(key: &str, value: &str) -> Service {
        let mut service = service(&[]);
        service.metadata.annotations = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        service
    }

    fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn every_annotation_is_in_the_reference_once() {
        let text = reference();
        for row in ALL {
            assert_eq!(text.matches(&format!("| `{}` |", row.key)).count(), 1);
            assert!(!row.doc.trim().is_empty() && !row.default.is_empty());
        }
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        assert_eq!(rows.count(), ALL.len());
    }

    /// REQ-AWS-DIV-1, REQ-AWS-DIV-2
    #[test]
    fn the_type_is_matched_exactly() {
        for (value, want) in [
            ("nlb", Flavour::Network),
            ("NLB", Flavour::Classic),
            ("clb", Flavour::Classic),
            ("", Flavour::Classic),
            ("external", Flavour::Elsewhere),
            ("nlb-ip", Flavour::Elsewhere),
        ] {
            assert_eq!(flavour(&with(TYPE.key, value)), want, "{value}");
            assert_eq!(TYPE.get(&with(TYPE.key, value)).unwrap(), Some(want));
        }
        assert_eq!(flavour(&Service::default()), Flavour::Classic);
    }

    /// REQ-AWS-TAG-18, REQ-AWS-TAG-19, REQ-AWS-TAG-23
    #[test]
    fn key_value_lists_are_split_as_by_the_go_manager() {
        let tags = |value| {
            ADDITIONAL_RESOURCE_TAGS
                .get(&with(ADDITIONAL_RESOURCE_TAGS.key, value))
                .unwrap()
                .unwrap()
        };
        assert_eq!(tags("Key=Val"), pairs(&[("Key", "Val")]));
        assert_eq!(
            tags("Key1=Val1, Key2=Val2"),
            pairs(&[("Key1", "Val1"), ("Key2", "Val2")])
        );
        assert_eq!(
            tags("Key1=, Key2=Val2"),
            pairs(&[("Key1", ""), ("Key2", "Val2")])
        );
        assert_eq!(
            tags("K=V K1=V2,Key1========, =====, ======Val, =Val, , 234,"),
            pairs(&[("K", "V K1"), ("Key1", ""), ("234", "")])
        );
        assert_eq!(tags("K = V"), pairs(&[("K ", " V")]));
        assert_eq!(tags("a=1,a=2"), pairs(&[("a", "2")]));
        assert_eq!(
            ADDITIONAL_RESOURCE_TAGS.get(&Service::default()).unwrap(),
            None
        );
    }

    /// REQ-AWS-VAL-23
    #[test]
    fn every_text_but_false_and_nothing_means_internal() {
        for (value, want) in [
            ("", false),
            ("false", false),
            ("true", true),
            ("0.0.0.0/0", true),
            ("False", true),
        ] {
            assert_eq!(
                INTERNAL.get(&with(INTERNAL.key, value)).unwrap(),
                Some(want),
                "{value}"
            );
        }
    }

    /// REQ-AWS-VAL-29
    #[test]
    fn values_of_the_wrong_type_are_refused_with_key_and_value() {
        let key = ACCESS_LOG_ENABLED.key;
        let error = ACCESS_LOG_ENABLED.get(&with(key, "maybe")).unwrap_err();
        assert_eq!(error.class(), ccm_core::cloud::Class::Invalid);
        assert_eq!(
            error.to_string(),
            format!("error parsing service annotation: {key}=maybe (accepted: true or false)")
        );
        for (annotation, value) in [
            (&CONNECTION_IDLE_TIMEOUT, "60s"),
            (&CONNECTION_DRAINING_TIMEOUT, "x"),
        ] {
            let error = annotation.get(&with(annotation.key, value)).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "error parsing service annotation: {}={value} (accepted: a whole number)",
                    annotation.key
                )
            );
        }
        assert_eq!(
            CONNECTION_IDLE_TIMEOUT
                .get(&with(CONNECTION_IDLE_TIMEOUT.key, ""))
                .unwrap(),
            None
        );
        let key = PROXY_PROTOCOL.key;
        assert_eq!(
            PROXY_PROTOCOL.get(&with(key, "*")).unwrap().as_deref(),
            Some("*")
        );
        assert_eq!(
            PROXY_PROTOCOL.get(&with(key, "x")).unwrap_err().to_string(),
            format!(
                "annotation \"{key}\"=\"x\" detected, but the only value supported currently is '*'"
            )
        );
    }

    #[test]
    fn booleans_are_what_go_takes_for_booleans() {
        let get = |value| {
            CROSS_ZONE_LOAD_BALANCING_ENABLED
                .get(&with(CROSS_ZONE_LOAD_BALANCING_ENABLED.key, value))
        };
        for value in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(get(value).unwrap(), Some(true));
        }
        for value in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(get(value).unwrap(), Some(false));
        }
        assert_eq!(get("").unwrap(), None);
        for value in ["yes", " true", "tRUE"] {
            assert!(get(value).is_err(), "{value:?}");
        }
    }

    /// REQ-AWS-VAL-30
    #[test]
    fn an_empty_health_check_number_is_an_error() {
        let key = HEALTHCHECK_INTERVAL.key;
        for value in ["", "x", " 5", "99999999999"] {
            let error = HEALTHCHECK_INTERVAL.get(&with(key, value)).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("failed to parse annotation {key}={value} (accepted: a whole number)")
            );
        }
        assert_eq!(
            HEALTHCHECK_INTERVAL.get(&with(key, "15")).unwrap(),
            Some(15)
        );
    }

    /// REQ-AWS-VAL-26
    #[test]
    fn port_sets_take_numbers_and_names() {
        let get = |value| SSL_PORTS.get(&with(SSL_PORTS.key, value)).unwrap().unwrap();
        let named = get("443,https");
        assert!(named.contains(443, None) && named.contains(8443, Some("https")));
        assert!(!named.contains(80, Some("http")) && !named.contains(80, None));
        for value in ["*", ""] {
            assert!(get(value).contains(80, None));
        }
        let blank = get("443, 8443");
        assert!(blank.contains(443, None));
        assert!(
            blank.contains(8443, None),
            "a blank before a number is forgiven"
        );
        assert!(blank.contains(1, Some(" 8443")));
    }

    /// REQ-AWS-VAL-27, REQ-AWS-VAL-28
    #[test]
    fn lists_are_trimmed_and_their_order_is_kept() {
        let get = |value| SUBNETS.get(&with(SUBNETS.key, value)).unwrap();
        assert_eq!(get("\t, ,,"), Some(vec![]));
        assert_eq!(
            get("subnet-1, subnet-2, My Subnet "),
            Some(vec![
                "subnet-1".into(),
                "subnet-2".into(),
                "My Subnet".into()
            ])
        );
        let eips = EIP_ALLOCATIONS
            .get(&with(EIP_ALLOCATIONS.key, "a, b"))
            .unwrap();
        assert_eq!(eips, Some(vec!["a".into(), " b".into()]));
    }

    fn ranges(service: &Service) -> Result<Vec<String>, String> {
        source_ranges(service)
            .map(|all| all.iter().map(ToString::to_string).collect())
            .map_err(|e| e.to_string())
    }

    /// REQ-AWS-VAL-19, REQ-AWS-VAL-20, REQ-AWS-VAL-21, REQ-AWS-VAL-33
    #[test]
    fn source_ranges_come_from_the_spec_then_from_the_annotation() {
        let key = SOURCE_RANGES.key;
        assert_eq!(ranges(&Service::default()), Ok(vec!["0.0.0.0/0".into()]));
        assert_eq!(ranges(&with(key, " ")), Ok(vec!["0.0.0.0/0".into()]));
        assert_eq!(
            ranges(&with(key, " 10.0.0.0/8 , 192.168.0.0/16")),
            Ok(vec!["10.0.0.0/8".into(), "192.168.0.0/16".into()])
        );
        assert_eq!(
            ranges(&with(key, "10.0.0.0/8,")).unwrap_err(),
            format!(
                "{key}: 10.0.0.0/8, is not valid. Expecting a comma-separated list of source IP \
                 ranges. For example, 10.0.0.0/24,192.168.2.0/24"
            )
        );
        let mut both = with(key, "1.2.3.4/32");
        both.spec.load_balancer_source_ranges = Some(vec![
            "10.0.0.5/8".into(),
            "10.1.2.3/8".into(),
            "2001:db8::1/32".into(),
        ]);
        assert_eq!(
            ranges(&both),
            Ok(vec!["10.0.0.0/8".into(), "2001:db8::/32".into()])
        );
        both.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".into(), "x".into()]);
        let error = ranges(&both).unwrap_err();
        assert!(
            error.starts_with(
                "service.Spec.LoadBalancerSourceRanges: [10.0.0.0/8 x] is not valid. Expecting a \
                 list of IP ranges. For example, 10.0.0.0/24. Error msg: "
            ),
            "{error}"
        );
    }
}
