use super::*;

const K: NodeIpamPolicy = NodeIpamPolicy::Kubernetes;
const G: NodeIpamPolicy = NodeIpamPolicy::Gcp;
const A: NodeIpamPolicy = NodeIpamPolicy::Azure;

fn on(cluster: &str) -> NodeIpamSettings {
    NodeIpamSettings {
        allocate: true,
        cluster_cidr: cluster.to_owned(),
        ..NodeIpamSettings::default()
    }
}

fn with(cluster: &str, change: impl FnOnce(&mut NodeIpamSettings)) -> NodeIpamSettings {
    let mut settings = on(cluster);
    change(&mut settings);
    settings
}

const fn offer_of(policy: NodeIpamPolicy) -> Offer {
    match policy {
        NodeIpamPolicy::Kubernetes => Offer::None,
        NodeIpamPolicy::Gcp => Offer::Copied,
        NodeIpamPolicy::Azure => Offer::Sized,
    }
}

/// What a start does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Skip,
    Fail,
    Warn,
    Note,
    Run,
}

fn end(policy: NodeIpamPolicy, settings: &NodeIpamSettings) -> (Ends, String) {
    match check(policy, offer_of(policy), settings) {
        Err(error) => (Ends::Fail, error.to_string()),
        Ok(checked) if matches!(checked.plan, Plan::Skip) => (Ends::Skip, String::new()),
        Ok(checked) if !checked.warnings.is_empty() => (Ends::Warn, checked.warnings.join("\n")),
        Ok(checked) if !checked.notes.is_empty() => (Ends::Note, checked.notes.join("\n")),
        Ok(_) => (Ends::Run, String::new()),
    }
}

/// REQ-IPAM-11, REQ-IPAM-14
#[test]
fn every_row_of_the_misconfiguration_table_ends_as_the_providers_column_says() {
    use Ends::{Fail, Note, Run, Skip, Warn};
    const DUAL: &str = "10.64.0.0/14,2001:db8::/48";
    let v4 = "10.64.0.0/14";
    let v6 = "2001:db8::/48";
    let cluster = on;
    let services = |text: &str| with(v4, |s| s.service_cluster_ip_range = text.to_owned());
    let kind = |text: &str| with(v4, |s| s.allocator_type = text.to_owned());
    let off = NodeIpamSettings::default();
    // The fault; what the three columns do; what the text must name.
    let rows: Vec<(NodeIpamSettings, [Ends; 3], &[&str])> = vec![
        (off, [Skip, Fail, Skip], &["--allocate-node-cidrs"]),
        (cluster(""), [Fail; 3], &["--cluster-cidr", "empty"]),
        (
            cluster("10.64/14"),
            [Fail; 3],
            &["--cluster-cidr", "10.64/14"],
        ),
        (
            cluster("10.64.0.0/14, 2001:db8::/48"),
            [Fail; 3],
            &["--cluster-cidr", "\" 2001:db8::/48\""],
        ),
        (
            cluster("10.64.0.0/14,10.128.0.0/14"),
            [Fail; 3],
            &["--cluster-cidr", "one family"],
        ),
        (
            cluster("10.64.0.0/14,2001:db8::/48,10.1.0.0/16"),
            [Fail; 3],
            &["--cluster-cidr", "3 CIDRs"],
        ),
        (
            services("10.0.0.0/16,fd00::/112,10.1.0.0/16"),
            [Fail; 3],
            &["--service-cluster-ip-range", "more than two"],
        ),
        (
            with("", |s| {
                s.allocate = false;
                s.service_cluster_ip_range = "10.0.0.0/16,fd00::/112,10.1.0.0/16".to_owned();
            }),
            [Fail; 3],
            &["--service-cluster-ip-range"],
        ),
        // The warning is told at the start, with those of all other flags.
        (services("10.0.0.0"), [Run; 3], &[]),
        (services("10.0.0.0/16, fd00::/112"), [Run; 3], &[]),
        (
            services("10.0.0.0/16,10.1.0.0/16"),
            [Fail; 3],
            &["--service-cluster-ip-range", "one family"],
        ),
        (
            with(DUAL, |s| s.mask_size = 25),
            [Fail, Fail, Warn],
            &["--node-cidr-mask-size=25", "--node-cidr-mask-size-ipv4"],
        ),
        (
            with(v4, |s| (s.mask_size, s.mask_size_ipv4) = (25, 26)),
            [Fail, Fail, Warn],
            &["--node-cidr-mask-size=25", "--node-cidr-mask-size-ipv4"],
        ),
        (
            with(v4, |s| s.mask_size = 25),
            [Run, Run, Warn],
            &["--node-cidr-mask-size=25 is ignored"],
        ),
        (
            with(v4, |s| s.mask_size_ipv6 = 64),
            [Fail, Note, Run],
            &["--node-cidr-mask-size-ipv6=64"],
        ),
        (
            with(v6, |s| s.mask_size_ipv4 = 24),
            [Fail, Note, Run],
            &["--node-cidr-mask-size-ipv4=24"],
        ),
        (
            with(v4, |s| s.mask_size_ipv4 = 13),
            [Fail; 3],
            &[
                "/13",
                "10.64.0.0/14",
                "--node-cidr-mask-size-ipv4",
                "14 to 32",
            ],
        ),
        (
            with(v4, |s| s.mask_size_ipv4 = 33),
            [Fail; 3],
            &["14 to 32"],
        ),
        (with(v4, |s| s.mask_size_ipv4 = -1), [Fail; 3], &["/-1"]),
        (
            cluster("2001:db8::/47"),
            [Fail; 3],
            &[
                "New CIDR set failed; the node CIDR size is too big",
                "--node-cidr-mask-size-ipv6 to at most 63",
            ],
        ),
        (
            kind("Nonsense"),
            [Fail; 3],
            &["--cidr-allocator-type=\"Nonsense\""],
        ),
        (
            kind("CloudAllocator"),
            [Fail, Run, Run],
            &["set RangeAllocator"],
        ),
        (kind("IPAMFromCluster"), [Fail; 3], &["not supported"]),
        (kind("IPAMFromCloud"), [Fail; 3], &["not supported"]),
        (cluster(v4), [Run; 3], &[]),
        (cluster(DUAL), [Run; 3], &[]),
        (services(""), [Run; 3], &[]),
    ];
    for (settings, ends, texts) in rows {
        for (policy, want) in [K, G, A].into_iter().zip(ends) {
            let (got, text) = end(policy, &settings);
            assert_eq!(got, want, "{policy:?} {settings:?}: {text}");
            for part in texts.iter().filter(|_| !text.is_empty()) {
                assert!(text.contains(part), "{policy:?}: {part:?} not in {text:?}");
            }
        }
    }
}

fn prefixes(policy: NodeIpamPolicy, settings: &NodeIpamSettings) -> Vec<(String, u8, u8)> {
    let offer = offer_of(policy);
    match check(policy, offer, settings).unwrap().plan {
        Plan::Range(plan) | Plan::Sized(plan) => plan
            .families
            .iter()
            .map(|f| (f.set.cluster().to_string(), f.set.node_prefix(), f.prefix))
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// REQ-IPAM-11
#[test]
fn mask_sizes_stand_in_the_order_of_the_cluster_cidrs() {
    let dual = with("2001:db8::/56,10.64.0.0/14", |s| s.mask_size_ipv4 = 26);
    for policy in [K, G, A] {
        assert_eq!(
            prefixes(policy, &dual),
            [
                ("2001:db8::/56".to_owned(), 64, 64),
                ("10.64.0.0/14".to_owned(), 26, 26)
            ]
        );
    }
    let single = with("10.64.0.0/14", |s| s.mask_size = 25);
    assert_eq!(prefixes(K, &single)[0].1, 25);
    assert_eq!(prefixes(A, &single)[0].1, 24, "ignored");
    let single = with("2001:db8::/56", |s| s.mask_size = 70);
    assert_eq!(prefixes(K, &single)[0].1, 70);
    // A base address with host bits is masked, as everywhere.
    assert_eq!(prefixes(K, &on("10.65.1.2/14"))[0].0, "10.64.0.0/14");
}

/// REQ-IPAM-11
#[test]
fn a_mask_shorter_than_the_clusters_stops_nothing_where_the_cloud_names_the_sizes() {
    let short = with("10.64.0.0/26", |s| {
        "CloudAllocator".clone_into(&mut s.allocator_type);
    });
    assert!(check(G, Offer::Copied, &short).is_ok());
    assert_eq!(prefixes(A, &short), [("10.64.0.0/26".to_owned(), 26, 24)]);
    let error = check(G, Offer::None, &short).unwrap_err().to_string();
    assert!(error.contains("--cidr-allocator-type"), "{error}");
}

/// REQ-IPAM-03
#[test]
fn a_service_range_that_can_be_read_is_kept_beside_one_that_cannot() {
    let settings = with("10.64.0.0/14", |s| {
        "10.64.0.0/24,nonsense".clone_into(&mut s.service_cluster_ip_range);
    });
    let Plan::Range(plan) = check(K, Offer::None, &settings).unwrap().plan else {
        panic!("no range allocator");
    };
    assert_eq!(plan.services, ["10.64.0.0/24".parse::<IpNet>().unwrap()]);
}
