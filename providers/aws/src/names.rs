//! Every name and description that this provider writes or looks for (specification: aws §4.2).
//!
//! None of them may change: existing load balancers, target groups, security groups and rules are
//! found by them.

use std::fmt::Write as _;

use ccm_core::cloud::{LoadBalancerName, NameError};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// The description of the security group that we make for a network load balancer.
pub const NLB_SECURITY_GROUP_DESCRIPTION: &str = "[k8s] Managed SecurityGroup for LoadBalancer";

/// What the description of every security group begins with that is made for a classic load balancer.
pub const CLASSIC_SECURITY_GROUP_DESCRIPTION: &str = "Security group for Kubernetes ELB ";

/// The policy that turns the PROXY protocol on towards the Nodes of a classic load balancer.
pub const PROXY_PROTOCOL_POLICY: &str = "k8s-proxyprotocol-enabled";

/// The description of the rules that let "fragmentation needed" reach the Nodes. It is shared by
/// all load balancers.
pub const NLB_MTU_RULE_DESCRIPTION: &str = "kubernetes.io/rule/nlb/mtu";

/// What every client rule's description begins with, whatever the load balancer.
pub const NLB_CLIENT_RULE_PREFIX: &str = "kubernetes.io/rule/nlb/client";

/// What every health rule's description begins with; the load balancer's name follows.
pub const NLB_HEALTH_RULE_PREFIX: &str = "kubernetes.io/rule/nlb/health=";

/// The target type of every target group that the manager makes.
pub const TARGET_TYPE_INSTANCE: &str = "instance";

/// Characters of namespace and Service name that go into a hashed name.
const PART: usize = 8;
/// Hexadecimal digits of the hash in a hashed name.
const HASH: usize = 10;

/// The name of a Service's load balancer, classic or network: `a`, then the UID without dashes,
/// cut to 32 characters.
///
/// # Errors
/// An empty UID.
pub fn load_balancer(uid: &str) -> Result<LoadBalancerName, NameError> {
    LoadBalancerName::from_uid(uid)
}

/// What a target group's name is made from. One other value in any field makes another name, so a
/// change of any of them replaces the target group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetGroupKey<'a> {
    /// The cluster id of the tags, not `--cluster-name`.
    pub cluster_id: &'a str,
    /// The Service's namespace.
    pub namespace: &'a str,
    /// The Service's name.
    pub service: &'a str,
    /// The listener's port.
    pub port: i32,
    /// The port on the Nodes.
    pub node_port: i32,
    /// `TCP`, `UDP` or `TLS`.
    pub protocol: &'a str,
    /// Always [`TARGET_TYPE_INSTANCE`] in what we make.
    pub target_type: &'a str,
    /// Protocol of the health check.
    pub health_protocol: &'a str,
    /// Seconds between health checks.
    pub health_interval: i32,
}

/// The name of a target group: `k8s-<namespace>-<service>-<hash>`, the hash being the first ten
/// digits of a SHA-1.
pub fn target_group(key: &TargetGroupKey<'_>) -> String {
    let mut hash = Sha1::new();
    hash.update(key.cluster_id);
    hash.update(key.namespace);
    hash.update(key.service);
    hash.update(key.port.to_string());
    hash.update(key.node_port.to_string());
    hash.update(key.protocol);
    hash.update(key.target_type);
    hash.update(key.health_protocol);
    hash.update(key.health_interval.to_string());
    hashed(key.namespace, key.service, &hash.finalize())
}

/// The name of the security group that we make for a network load balancer:
/// `k8s-<namespace>-<service>-<hash>`, the hash being the first ten digits of a SHA-256 over
/// `--cluster-name`, Service name, namespace and UID.
pub fn nlb_security_group(cluster_name: &str, namespace: &str, service: &str, uid: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(cluster_name);
    hash.update(service);
    hash.update(namespace);
    hash.update(uid);
    hashed(namespace, service, &hash.finalize())
}

/// The name of the security group of a classic load balancer.
pub fn classic_security_group(load_balancer: &LoadBalancerName) -> String {
    format!("k8s-elb-{load_balancer}")
}

/// The description of the security group of a classic load balancer.
pub fn classic_security_group_description(
    load_balancer: &LoadBalancerName,
    namespace: &str,
    service: &str,
) -> String {
    format!("{CLASSIC_SECURITY_GROUP_DESCRIPTION}{load_balancer} ({namespace}/{service})")
}

/// The name of the policy of a classic load balancer that refers to a predefined TLS policy.
pub fn ssl_negotiation_policy(predefined: &str) -> String {
    format!("k8s-SSLNegotiationPolicy-{predefined}")
}

/// The description of the rules that let clients of a network load balancer reach the Nodes.
pub fn nlb_client_rule(load_balancer: &LoadBalancerName) -> String {
    format!("{NLB_CLIENT_RULE_PREFIX}={load_balancer}")
}

/// The description of the rules that let the health checks of a network load balancer reach the
/// Nodes.
pub fn nlb_health_rule(load_balancer: &LoadBalancerName) -> String {
    format!("{NLB_HEALTH_RULE_PREFIX}{load_balancer}")
}

fn hashed(namespace: &str, service: &str, digest: &[u8]) -> String {
    let mut name = format!("k8s-{}-{}-", part(namespace), part(service));
    for byte in digest.iter().take(HASH.div_ceil(2)) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn part(text: &str) -> String {
    text.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(PART)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "12345678-1234-1234-1234-123456789abc";

    fn key() -> TargetGroupKey<'static> {
        TargetGroupKey {
            cluster_id: "cluster-a",
            namespace: "default",
            service: "service-a",
            port: 80,
            node_port: 8080,
            protocol: "TCP",
            target_type: "instance",
            health_protocol: "",
            health_interval: 0,
        }
    }

    /// REQ-AWS-NAME-1, REQ-AWS-NAME-2
    #[test]
    fn load_balancers_are_named_after_the_uid() {
        let name = load_balancer(UID).unwrap();
        assert_eq!(name.as_str(), "a12345678123412341234123456789ab");
        let short = load_balancer("id").unwrap();
        assert_eq!(short.as_str(), "aid");
        assert_eq!(classic_security_group(&short), "k8s-elb-aid");
        assert_eq!(
            classic_security_group_description(&short, "ns", "s"),
            "Security group for Kubernetes ELB aid (ns/s)"
        );
        assert!(load_balancer("").is_err());
    }

    /// REQ-AWS-NAME-3, REQ-AWS-NAME-4
    #[test]
    fn each_field_of_the_key_changes_the_target_group_name() {
        let base = key();
        let other_type = TargetGroupKey {
            target_type: "ip",
            ..base
        };
        let with_check = TargetGroupKey {
            health_protocol: "HTTP",
            health_interval: 10,
            ..other_type
        };
        for (key, want) in [
            (base, "k8s-default-servicea-7fa2e07508"),
            (
                TargetGroupKey {
                    cluster_id: "cluster-b",
                    ..base
                },
                "k8s-default-servicea-719ee635da",
            ),
            (
                TargetGroupKey {
                    namespace: "another",
                    ..base
                },
                "k8s-another-servicea-f66e09847d",
            ),
            (
                TargetGroupKey {
                    service: "service-b",
                    ..base
                },
                "k8s-default-serviceb-196c19c881",
            ),
            (
                TargetGroupKey { port: 9090, ..base },
                "k8s-default-servicea-06876706cb",
            ),
            (
                TargetGroupKey {
                    node_port: 9090,
                    ..base
                },
                "k8s-default-servicea-119f844ec0",
            ),
            (
                TargetGroupKey {
                    protocol: "UDP",
                    ..base
                },
                "k8s-default-servicea-3868761686",
            ),
            (other_type, "k8s-default-servicea-0fa31f4b0f"),
            (with_check, "k8s-default-servicea-4028e49618"),
        ] {
            assert_eq!(target_group(&key), want, "{key:?}");
        }
    }

    /// REQ-AWS-NAME-5
    #[test]
    fn the_health_check_is_part_of_the_target_group_name() {
        let key = TargetGroupKey {
            service: "web",
            node_port: 30080,
            health_protocol: "TCP",
            health_interval: 30,
            ..key()
        };
        assert_eq!(target_group(&key), "k8s-default-web-08ed573a38");
        let local = TargetGroupKey {
            health_protocol: "HTTP",
            health_interval: 10,
            ..key
        };
        assert_eq!(target_group(&local), "k8s-default-web-ff842095ad");
    }

    /// REQ-AWS-NAME-6, REQ-AWS-NAME-7, REQ-AWS-NAME-8, REQ-AWS-NAME-9, REQ-AWS-NAME-10
    #[test]
    fn security_groups_of_network_load_balancers_are_named_as_by_the_go_manager() {
        for (cluster, namespace, service, uid, want) in [
            (
                "test-cluster",
                "default",
                "my-service",
                UID,
                "k8s-default-myservic-b7cb8b02f0",
            ),
            (
                "test-cluster",
                "kube-system",
                "my-service-123",
                "87654321-4321-4321-4321-cba987654321",
                "k8s-kubesyst-myservic-5aa269aeaf",
            ),
            (
                "",
                "default",
                "test-service",
                "test-uid-123",
                "k8s-default-testserv-4ff26f905f",
            ),
            (
                "prod-cluster-01",
                "prod-ns_01",
                "api-v2.service",
                "special-chars-uid-456",
                "k8s-prodns01-apiv2ser-9d72cd8df0",
            ),
            ("c", "b", "a", "x", "k8s-b-a-7a83d4e37a"),
            (
                "kubernetes",
                "default",
                "web",
                UID,
                "k8s-default-web-845f3eeb22",
            ),
        ] {
            assert_eq!(nlb_security_group(cluster, namespace, service, uid), want);
        }
    }

    #[test]
    fn rules_carry_the_load_balancer_in_their_description() {
        let name = load_balancer("id").unwrap();
        assert_eq!(nlb_client_rule(&name), "kubernetes.io/rule/nlb/client=aid");
        assert_eq!(nlb_health_rule(&name), "kubernetes.io/rule/nlb/health=aid");
    }

    proptest! {
        /// AWS's limit for load balancers and target groups.
        #[test]
        fn no_name_is_too_long_or_has_other_characters(
            namespace in "[a-z0-9-]{0,63}|.{0,12}",
            service in "[a-z0-9-]{0,63}|.{0,12}",
            uid in ".{1,40}", port: i32,
        ) {
            let key = TargetGroupKey { namespace: &namespace, service: &service, port, ..key() };
            for name in [target_group(&key), nlb_security_group("c", &namespace, &service, &uid)] {
                prop_assert!(name.len() <= 32, "{}", name);
                let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
                prop_assert!(name.chars().all(fits) && !name.starts_with('-') && !name.ends_with('-'));
            }
        }
    }
}
