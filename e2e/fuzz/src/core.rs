//! Parsers of `ccm-core`.

use std::{collections::BTreeSet, io::Write as _, path::PathBuf};

use ccm_core::{
    cloud::{ClusterName, LoadBalancerName, NodeName, ProviderId},
    config::{ApiSettings, GoDuration, LowArgs, Settings},
    controllers::{
        node::parse_node_ips,
        route::ClusterCidrs,
        service::source_ranges::{SOURCE_RANGES_ANNOTATION, allows_all, parse_source_ranges},
    },
    kube::{ClientFactory, Service},
    runtime::ProbeQuery,
};
use ipnet::IpNet;

use crate::text;

/// The flag that names a file, which `Settings` reads: a path made up by the fuzzer could be a
/// device.
const FILE_FLAG: &str = "leader-migration-config";

/// `--…`: the command line, an argument a line.
///
/// Laws: every error is one line that is not empty; what is readable is readable again.
pub fn fuzz_flags(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let args: Vec<&str> = text.lines().collect();
    let read = LowArgs::parse(args.iter().copied());
    if let Err(errors) = &read {
        assert!(errors.iter().next().is_some());
        for error in errors.iter() {
            assert!(
                !error.trim().is_empty() && !error.contains('\n'),
                "{error:?}"
            );
        }
    }
    if text.replace('_', "-").contains(FILE_FLAG) {
        return;
    }
    match Settings::parse(args.iter().copied()) {
        Ok(_) => assert!(read.is_ok(), "unreadable flags were accepted: {args:?}"),
        Err(errors) => {
            for error in errors.iter() {
                assert!(
                    !error.trim().is_empty() && !error.contains('\n'),
                    "{error:?}"
                );
            }
        }
    }
}

/// Durations.
///
/// Laws: what is written is read back; a negative text has the negative value.
pub fn fuzz_durations(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(duration) = GoDuration::parse(text) else {
        return;
    };
    assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
    if duration.nanoseconds() > 0 {
        let positive = text.strip_prefix('+').unwrap_or(text);
        let negative = GoDuration::parse(&format!("-{positive}"));
        assert_eq!(
            negative.map(GoDuration::nanoseconds),
            Ok(-duration.nanoseconds())
        );
    }
}

/// The file of `--leader-migration-config`.
///
/// Law: every error is one line and names the flag.
pub fn fuzz_leader_migration(data: &[u8]) {
    let Some(file) = file(data) else { return };
    let settings = Settings::parse([
        "--cloud-provider=aws".to_owned(),
        "--enable-leader-migration".to_owned(),
        format!("--{FILE_FLAG}={}", file.path().display()),
    ]);
    if let Err(errors) = settings {
        for error in errors.iter() {
            assert!(
                error.contains(FILE_FLAG) && !error.contains('\n'),
                "{error:?}"
            );
        }
    }
}

/// A kubeconfig. No client is built of it, so no plugin that it names is started.
///
/// Law: an error names flag and file.
pub fn fuzz_kubeconfig(data: &[u8]) {
    // A path made up by the fuzzer could be a device that never ends.
    if text(data).is_some_and(|text| text.contains("/dev")) {
        return;
    }
    let Some(file) = file(data) else { return };
    let settings = ApiSettings {
        kubeconfig: Some(PathBuf::from(file.path())),
        master: None,
        rate: None,
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else {
        return;
    };
    let registry = prometheus::Registry::new();
    if let Err(error) = runtime.block_on(ClientFactory::new(&settings, &registry)) {
        let start = format!("--kubeconfig {}: ", file.path().display());
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}

fn file(data: &[u8]) -> Option<tempfile::NamedTempFile> {
    let mut file = tempfile::NamedTempFile::new().ok()?;
    file.write_all(data).ok()?;
    Some(file)
}

/// Names of Kubernetes and of clouds.
///
/// Laws: a name is the text itself, and has a length; a load balancer's default name is short and
/// does not depend on the dashes of the UID.
pub fn fuzz_names(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let fits = |max: usize| (1..=max).contains(&text.len());
    assert_eq!(NodeName::new(text).is_ok(), fits(NodeName::MAX));
    assert_eq!(ProviderId::new(text).is_ok(), fits(ProviderId::MAX));
    assert_eq!(ClusterName::new(text).is_ok(), fits(ClusterName::MAX));
    if let Ok(name) = NodeName::new(text) {
        assert_eq!(name.as_str(), text);
    }
    let Ok(name) = LoadBalancerName::from_uid(text) else {
        assert!(text.is_empty());
        return;
    };
    assert!(name.as_str().starts_with('a') && name.as_str().chars().count() <= 32);
    let bare = text.replace('-', "");
    if !bare.is_empty() {
        assert_eq!(LoadBalancerName::from_uid(&bare), Ok(name));
    }
}

/// The node IPs that a kubelet asks for in an annotation.
///
/// Laws: one or two addresses, two of different families; what is written is read back.
pub fn fuzz_node_ips(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(ips) = parse_node_ips(text) else {
        return;
    };
    let families: BTreeSet<bool> = ips.iter().map(std::net::IpAddr::is_ipv4).collect();
    assert!((1..=2).contains(&ips.len()) && families.len() == ips.len());
    let written: Vec<String> = ips.iter().map(ToString::to_string).collect();
    assert_eq!(parse_node_ips(&written.join(",")), Ok(ips));
}

/// The query of a health probe.
///
/// Law: as many exclusions as the text has; what is read can be written and read again.
pub fn fuzz_probe_queries(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let query = ProbeQuery::parse(text);
    let mut parts: Vec<String> = query
        .exclude
        .iter()
        .map(|name| format!("exclude={name}"))
        .collect();
    if query.verbose {
        parts.push("verbose".to_owned());
    }
    assert_eq!(ProbeQuery::parse(&parts.join("&")), query);
}

/// `--cluster-cidr` for the route controller.
///
/// Laws: blanks around the whole do not matter; an error names the flag; the ranges cover what the
/// text names.
pub fn fuzz_route_cidrs(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let trimmed = text.trim();
    match ClusterCidrs::parse(text) {
        Ok(cidrs) => {
            assert!(trimmed.split(',').all(|range| cidrs.covers(range)));
            assert_eq!(ClusterCidrs::parse(trimmed).ok(), Some(cidrs));
        }
        Err(error) => {
            assert!(error.to_string().contains("--cluster-cidr"), "{error}");
            assert!(ClusterCidrs::parse(trimmed).is_err());
        }
    }
}

/// The clients of a load balancer, from the field and from the annotation.
///
/// Laws: both places are read alike; the networks have no host bits; what is written is read back.
pub fn fuzz_source_ranges(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let of_field = |text: &str| {
        let mut service = Service::default();
        service.spec.load_balancer_source_ranges =
            Some(text.split(',').map(str::to_owned).collect());
        parse_source_ranges(&service)
    };
    let mut annotated = Service::default();
    annotated
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(SOURCE_RANGES_ANNOTATION.to_owned(), text.to_owned());
    let annotation = parse_source_ranges(&annotated);
    let Ok(ranges) = annotation else {
        assert!(of_field(text).is_err());
        return;
    };
    assert!(!ranges.is_empty() && ranges.iter().all(|net| *net == net.trunc()));
    if !text.trim().is_empty() {
        assert_eq!(of_field(text).ok().as_ref(), Some(&ranges));
    }
    let written: Vec<String> = ranges.iter().map(IpNet::to_string).collect();
    assert_eq!(of_field(&written.join(", ")).ok().as_ref(), Some(&ranges));
    assert_eq!(
        allows_all(&ranges),
        written.iter().any(|net| net == "0.0.0.0/0")
    );
}
