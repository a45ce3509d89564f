//! Parsers of `ccm-aws`.

use std::collections::BTreeSet;

use ccm_aws::{
    annotations::{self, PortSet},
    config::CloudConfig,
    error::{classify, is_instance_not_found, is_malformed_instance_id},
    instances::InstanceId,
    load_balancer::{preflight::preflight, settings::Settings},
    names,
    tags::{ClusterTags, Lifecycle, Tags},
};
use ccm_core::{
    cloud::{Class, CloudError, ConfigFile},
    controllers::service::source_ranges::parse_source_ranges,
    kube::{Service, ServicePort},
};

use crate::text;

/// The name of the file in errors.
const FILE: &str = "aws.conf";

/// What all annotations of load balancers begin with.
const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";

fn config(text: &str) -> Result<CloudConfig, String> {
    let file = ConfigFile {
        path: FILE.to_owned(),
        text: text.to_owned(),
    };
    CloudConfig::load(Some(&file)).map_err(|error| error.to_string())
}

/// The cloud-config file.
///
/// Laws: comments and blank lines at the end change nothing; what is wrong is told in words; there
/// is always an address family, and a zone has a region.
pub fn fuzz_cloud_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let read = config(text);
    match &read {
        Ok(config) => {
            assert!(!config.node_ip_families.is_empty());
            assert!(config.zone.is_empty() || config.configured_region().is_some());
        }
        Err(error) => assert!(!error.trim().is_empty()),
    }
    if !text.ends_with('\\') {
        let longer = config(&format!("{text}\n\n; the end\n# of it\n"));
        match (read, longer) {
            (Ok(one), Ok(other)) => assert_eq!(format!("{one:?}"), format!("{other:?}")),
            (one, other) => assert_eq!(one.is_ok(), other.is_ok(), "{text:?}"),
        }
    }
}

/// Provider ids and the names of Nodes.
///
/// Laws: an id is part of the text, is one of ours, and is read back from the provider id that is
/// written for it; a Fargate id has an address.
pub fn fuzz_provider_ids(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(id) = InstanceId::from_node_name(text) {
        assert!(text.starts_with(id.as_str()) && !id.as_str().contains('.'));
    }
    let Ok(id) = InstanceId::from_provider_id(text) else {
        return;
    };
    assert!(text.contains(id.as_str()));
    assert_eq!(id.is_fargate(), id.fargate_address().is_some());
    assert!(id.is_fargate() || id.as_str().starts_with("i-"));
    assert_eq!(
        InstanceId::from_provider_id(id.as_str()).ok().as_ref(),
        Some(&id)
    );
    if let Ok(written) = id.provider_id("us-west-2a") {
        assert_eq!(
            InstanceId::from_provider_id(written.as_str()).ok(),
            Some(id),
            "{written}"
        );
    }
}

/// The annotations of a Service, one `key: value` a line, the keys without their common prefix; a
/// line without a colon is a client range.
///
/// Laws: what is wrong is the user's error; what passes has ports, names within AWS's lengths, and
/// the clients that the rest of the manager sees.
pub fn fuzz_annotations(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let service = service(text);
    let ours = annotations::source_ranges(&service);
    let theirs = parse_source_ranges(&service);
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => {
            assert_eq!(&ours.iter().copied().collect::<BTreeSet<_>>(), theirs);
        }
        (ours, theirs) => assert_eq!(ours.is_ok(), theirs.is_ok(), "{ours:?} {theirs:?}"),
    }
    if let Ok(Some(PortSet::Some { numbers, names })) = annotations::SSL_PORTS.get(&service) {
        assert!(!numbers.is_empty() || !names.is_empty());
    }
    let Some(settings) = settings() else { return };
    match preflight(&service, &settings) {
        Ok(request) => {
            assert!(!request.ports.is_empty());
            assert!(
                request
                    .ports
                    .iter()
                    .all(|port| port.target_group.len() <= 32)
            );
            assert!(request.managed_group.len() <= 32);
        }
        Err(error) => assert_eq!(error.class(), Class::Invalid, "{error}"),
    }
}

fn service(text: &str) -> Service {
    let mut service = Service::default();
    service.metadata.namespace = Some("shop".to_owned());
    service.metadata.name = Some("web".to_owned());
    service.metadata.uid = Some("12345678-1234-1234-1234-123456789abc".to_owned());
    service.spec.type_ = Some("LoadBalancer".to_owned());
    service.spec.ports = vec![ServicePort {
        name: Some("http".to_owned()),
        protocol: Some("TCP".to_owned()),
        port: 80,
        node_port: Some(30080),
        ..ServicePort::default()
    }];
    let mut all = std::collections::BTreeMap::from([(format!("{PREFIX}type"), "nlb".to_owned())]);
    let mut ranges = Vec::new();
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("source-ranges", value)) => {
                all.insert(annotations::SOURCE_RANGES.key.to_owned(), value.to_owned());
            }
            Some(("policy", value)) => {
                service.spec.external_traffic_policy = Some(value.to_owned());
            }
            Some((key, value)) => {
                all.insert(format!("{PREFIX}{key}"), value.to_owned());
            }
            None => ranges.push(line.to_owned()),
        }
    }
    service.metadata.annotations = Some(all);
    service.spec.load_balancer_source_ranges = Some(ranges);
    service
}

fn settings() -> Option<Settings> {
    let config = CloudConfig::load(None).ok()?;
    Some(Settings {
        cluster_name: "kubernetes".to_owned(),
        tags: ClusterTags::new("", "kite").ok()??,
        vpc_id: "vpc-1".to_owned(),
        fallback_subnet: None,
        disable_node_rules: false,
        delete_released: false,
        elb_security_group: None,
        managed_security_groups: true,
        health_probe: config.health_probe,
    })
}

/// Tags of the own instance, one `key=value` a line, and names made of them.
///
/// Laws: the identity is found again in the tags that are written for it, and the resource is then
/// ours; names are as long as AWS allows.
pub fn fuzz_tags(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let pairs = text
        .lines()
        .map(|line| line.split_once('=').unwrap_or((line, "")));
    let tags: Tags = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let group = names::nlb_security_group(text, text, text, text);
    assert!(group.starts_with("k8s-") && group.len() <= 32, "{group}");
    let Ok(Some(cluster)) = ClusterTags::from_tags(&tags) else {
        return;
    };
    let written = cluster.build(Lifecycle::Owned, Tags::new());
    assert_eq!(
        ClusterTags::from_tags(&written).ok().flatten().as_ref(),
        Some(&cluster)
    );
    assert!(cluster.has_cluster_tag(&written));
    assert_eq!(cluster.has_cluster_tag_owned(&written), Ok(true));
    let missing = cluster.missing("resource", Lifecycle::Owned, &written);
    assert!(missing.is_ok_and(|missing| missing.is_empty()));
    assert!(cluster.has_cluster_tag(&tags));
}

/// What the cloud says about a call: an id on the first line, the code on the second, then the
/// text.
///
/// Laws: a code that is known decides whatever the status; an error means an instance only when it
/// names it.
pub fn fuzz_cloud_errors(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut parts = text.splitn(3, '\n');
    let mut next = || parts.next().unwrap_or_default();
    let (id, code, message) = (next(), next(), next());
    let class = classify(Some(code), None);
    let by_status = [400, 403, 404, 429, 500].map(|status| classify(Some(code), Some(status)));
    let known = class != Class::Transient;
    assert!(!known || by_status.iter().all(|other| *other == class));
    let error = CloudError::new(class, message).with_code(code);
    assert_eq!(
        is_instance_not_found(&error),
        code == "InvalidInstanceID.NotFound"
    );
    if is_malformed_instance_id(&error, id) {
        assert!(error.to_string().contains(id) && class == Class::Invalid);
    }
}
