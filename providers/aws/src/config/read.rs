//! From entries to settings: types, defaults, validation.

use std::collections::BTreeMap;

use regex::Regex;

use super::{
    CloudConfig, ConfigError, DEFAULT_SHARED_HEALTH_PATH, DEFAULT_SHARED_HEALTH_PORT,
    DEFAULT_TOPOLOGY_PATTERN, HealthProbe, HealthProbeMode, IpFamily, ServiceOverride,
    gcfg::{self, Entry},
    keys::{self, Effect, KEYS, Kind, Section},
    overrides,
};

/// The section for everything but endpoints.
const GLOBAL: &str = Section::Global.name();
/// The key whose values are a list.
const FAMILIES: &str = "NodeIPFamilies";

#[derive(Default)]
struct Raw {
    texts: BTreeMap<&'static str, String>,
    bools: BTreeMap<&'static str, bool>,
    integers: BTreeMap<&'static str, i32>,
    lists: BTreeMap<&'static str, Vec<String>>,
    overrides: Vec<ServiceOverride>,
    warnings: Vec<String>,
}

impl Raw {
    fn text(&self, key: &str) -> String {
        self.texts.get(key).cloned().unwrap_or_default()
    }

    fn bool(&self, key: &str) -> bool {
        self.bools.get(key).copied().unwrap_or_default()
    }
}

pub(super) fn read(path: &str, text: &str) -> Result<CloudConfig, ConfigError> {
    let entries = gcfg::parse(text).map_err(|e| {
        let section = e
            .section
            .map_or_else(String::new, |s| format!(" in section [{s}]"));
        let key = e.key.map_or_else(String::new, |k| format!(", key {k:?}"));
        ConfigError(format!(
            "cloud config {path}, line {}{section}{key}: {}",
            e.line, e.problem
        ))
    })?;
    let mut raw = Raw::default();
    for entry in &entries {
        match entry.section.as_str() {
            "global" if entry.subsection.is_none() => raw.global(path, entry)?,
            "serviceoverride" => raw.service_override(path, entry)?,
            _ => raw.warnings.push(ignored(path, entry, "section")),
        }
    }
    finish(raw)
}

impl Raw {
    fn global(&mut self, path: &str, entry: &Entry) -> Result<(), ConfigError> {
        let Some(key) = keys::find(Section::Global, &entry.key) else {
            self.warnings.push(ignored(path, entry, "key"));
            return Ok(());
        };
        match key.kind {
            Kind::Text => {
                let value = required(path, Section::Global, entry)?;
                self.texts.insert(key.name, value.to_owned());
            }
            Kind::Bool => {
                self.bools.insert(key.name, boolean(path, entry)?);
            }
            Kind::Integer => {
                self.integers.insert(key.name, integer(path, entry)?);
            }
            Kind::Texts => {
                let list = self.lists.entry(key.name).or_default();
                match &entry.value {
                    Some(word) => list.push(word.clone()),
                    // The bare key empties the list again.
                    None => list.clear(),
                }
            }
        }
        Ok(())
    }

    fn service_override(&mut self, path: &str, entry: &Entry) -> Result<(), ConfigError> {
        let label = entry.subsection.clone().unwrap_or_default();
        let index = match self.overrides.iter().position(|o| o.label == label) {
            Some(index) => index,
            None => {
                self.overrides.push(ServiceOverride {
                    label,
                    ..ServiceOverride::default()
                });
                self.overrides.len() - 1
            }
        };
        let Some(known) = keys::find(Section::ServiceOverride, &entry.key) else {
            self.warnings.push(ignored(path, entry, "key"));
            return Ok(());
        };
        let value = required(path, Section::ServiceOverride, entry)?.to_owned();
        if let Some(one) = self.overrides.get_mut(index) {
            match known.name {
                "Service" => one.service = value,
                "Region" => one.region = value,
                "URL" => one.url = value,
                "SigningRegion" => one.signing_region = value,
                "SigningName" => one.signing_name = value,
                // SigningMethod was never used.
                _ => {}
            }
        }
        Ok(())
    }
}

fn finish(mut raw: Raw) -> Result<CloudConfig, ConfigError> {
    let mut warnings = std::mem::take(&mut raw.warnings);
    warnings.extend(overrides::validate(&mut raw.overrides)?);
    let zone = raw.text("Zone");
    if !zone.is_empty() && region_of_zone(&zone).is_none() {
        return Err(ConfigError(format!(
            "invalid AZ: {zone}; [{GLOBAL}] Zone must look like us-west-2a"
        )));
    }
    let role_arn = raw.text("RoleARN");
    if !role_arn.is_empty() && account_of_arn(&role_arn).is_none() {
        return Err(ConfigError(format!(
            "[{GLOBAL}] RoleARN {role_arn:?} is not an ARN; write arn:aws:iam::<account>:role/<name>"
        )));
    }
    let (tag, id) = (
        raw.text("KubernetesClusterTag"),
        raw.text("KubernetesClusterID"),
    );
    crate::tags::ClusterTags::new(&tag, &id).map_err(|e| {
        ConfigError(format!(
            "[{GLOBAL}] KubernetesClusterTag, KubernetesClusterID: {e}"
        ))
    })?;
    let without_effect = KEYS
        .iter()
        .filter(|key| key.effect == Effect::Later && !raw.text(key.name).is_empty())
        .map(|key| key.name)
        .collect();
    let given_families = raw.lists.remove(FAMILIES).unwrap_or_default();
    Ok(CloudConfig {
        node_ip_families: families(&given_families, &mut warnings)?,
        health_probe: probe(&raw, &mut warnings),
        topology_pattern: pattern(&raw.text("SupportedTopologyInstanceTypePattern"))?,
        nlb_security_group_managed: security_group_mode(&raw.text("NLBSecurityGroupMode"))?,
        region: raw.text("Region"),
        vpc: raw.text("VPC"),
        subnet_id: raw.text("SubnetID"),
        route_table_id: raw.text("RouteTableID"),
        source_arn: raw.text("SourceARN"),
        elb_security_group: raw.text("ElbSecurityGroup"),
        disable_security_group_ingress: raw.bool("DisableSecurityGroupIngress"),
        delete_released_load_balancers: raw.bool("DeleteReleasedLoadBalancers"),
        kubernetes_cluster_tag: tag,
        kubernetes_cluster_id: id,
        overrides: raw.overrides,
        zone,
        role_arn,
        warnings,
        without_effect,
    })
}

fn families(given: &[String], warnings: &mut Vec<String>) -> Result<Vec<IpFamily>, ConfigError> {
    let mut families = Vec::new();
    let mut unknown = Vec::new();
    for line in given {
        if line.contains(',') {
            warnings.push(format!(
                "[{GLOBAL}] {FAMILIES} = {line} is read as several families; write one line for each"
            ));
        }
        for word in line.split(',').map(str::trim) {
            match word {
                "ipv4" => families.push(IpFamily::V4),
                "ipv6" => families.push(IpFamily::V6),
                "" => warnings.push(format!(
                    "[{GLOBAL}] {FAMILIES} has an empty value; remove it"
                )),
                _ => unknown.push(word),
            }
        }
    }
    if !unknown.is_empty() {
        let what = format!(
            "[{GLOBAL}] {FAMILIES}: {} is no address family; write ipv4 or ipv6",
            unknown.join(", ")
        );
        // Nodes would have no address at all.
        if families.is_empty() {
            return Err(ConfigError(what));
        }
        warnings.push(what);
    }
    if families.is_empty() {
        families.push(IpFamily::V4);
    }
    Ok(families)
}

fn probe(raw: &Raw, warnings: &mut Vec<String>) -> HealthProbe {
    let key = "ClusterServiceLoadBalancerHealthProbeMode";
    let mode = match raw.text(key).as_str() {
        "" | "ServiceNodePort" => HealthProbeMode::ServiceNodePort,
        "Shared" => HealthProbeMode::Shared,
        other => {
            warnings.push(format!(
                "[{GLOBAL}] {key} = {other}: network load balancers will be refused; write Shared \
                 or ServiceNodePort"
            ));
            HealthProbeMode::Unsupported(other.to_owned())
        }
    };
    let path = raw.text("ClusterServiceSharedLoadBalancerHealthProbePath");
    HealthProbe {
        mode,
        port: match raw
            .integers
            .get("ClusterServiceSharedLoadBalancerHealthProbePort")
        {
            None | Some(0) => DEFAULT_SHARED_HEALTH_PORT,
            Some(port) => *port,
        },
        path: if path.is_empty() {
            DEFAULT_SHARED_HEALTH_PATH.to_owned()
        } else {
            path
        },
    }
}

fn pattern(text: &str) -> Result<Regex, ConfigError> {
    let text = if text.is_empty() {
        DEFAULT_TOPOLOGY_PATTERN
    } else {
        text
    };
    Regex::new(text).map_err(|e| {
        ConfigError(format!(
            "[{GLOBAL}] SupportedTopologyInstanceTypePattern {text:?} is not a regular expression; \
             correct it or remove the key: {e}"
        ))
    })
}

fn security_group_mode(text: &str) -> Result<bool, ConfigError> {
    match text {
        "" => Ok(false),
        "Managed" => Ok(true),
        _ => Err(ConfigError(format!(
            "[{GLOBAL}] NLBSecurityGroupMode: invalid NLB security group mode {text:?}; write \
             Managed or remove the key"
        ))),
    }
}

/// The region in a zone's name: `([a-zA-Z]+-)+[0-9]+` at its beginning.
pub(super) fn region_of_zone(zone: &str) -> Option<String> {
    let mut start = 0;
    for (words, part) in zone.split('-').enumerate() {
        let digits = part.chars().take_while(char::is_ascii_digit).count();
        if words > 0 && digits > 0 {
            return zone.get(..start + digits).map(str::to_owned);
        }
        if part.is_empty() || !part.chars().all(|c| c.is_ascii_alphabetic()) {
            return None;
        }
        start += part.len() + 1;
    }
    None
}

/// The account in an ARN; `None` when the text is not one.
pub(crate) fn account_of_arn(arn: &str) -> Option<&str> {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    match parts.as_slice() {
        ["arn", _, _, _, account, _] => Some(account),
        _ => None,
    }
}

fn ignored(path: &str, entry: &Entry, what: &str) -> String {
    let label = entry
        .subsection
        .as_ref()
        .map_or_else(String::new, |s| format!(" {s:?}"));
    format!(
        "cloud config {path}, line {}: unknown {what} is ignored: [{}{label}] {}",
        entry.line, entry.section, entry.key
    )
}

fn required<'a>(path: &str, section: Section, entry: &'a Entry) -> Result<&'a str, ConfigError> {
    entry
        .value
        .as_deref()
        .ok_or_else(|| wrong(path, section, entry, "has no value; write key = value"))
}

fn boolean(path: &str, entry: &Entry) -> Result<bool, ConfigError> {
    let Some(value) = &entry.value else {
        return Ok(true);
    };
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(wrong(
            path,
            Section::Global,
            entry,
            &format!("is {value:?}; write true or false"),
        )),
    }
}

fn integer(path: &str, entry: &Entry) -> Result<i32, ConfigError> {
    let value = required(path, Section::Global, entry)?;
    let hex = value
        .strip_prefix("0x")
        .or_else(|| value.strip_prefix("0X"));
    let number = match hex {
        Some(digits) if !digits.starts_with(['+', '-']) => i32::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => value.parse().ok(),
    };
    number.ok_or_else(|| {
        wrong(
            path,
            Section::Global,
            entry,
            &format!("is {value:?}; write a whole number such as 10256"),
        )
    })
}

fn wrong(path: &str, section: Section, entry: &Entry, what: &str) -> ConfigError {
    ConfigError(format!(
        "cloud config {path}, line {}: [{}] {} {what}",
        entry.line,
        section.name(),
        entry.key
    ))
}

#[cfg(test)]
mod tests {
    use ccm_core::cloud::ConfigFile;
    use proptest::prelude::*;

    use super::*;

    fn load(text: &str) -> Result<CloudConfig, String> {
        let file = ConfigFile {
            path: "aws.conf".into(),
            text: text.into(),
        };
        CloudConfig::load(Some(&file)).map_err(|e| e.to_string())
    }

    fn global(text: &str) -> CloudConfig {
        load(&format!("[Global]\n{text}")).unwrap()
    }

    fn refused(text: &str) -> String {
        load(&format!("[Global]\n{text}")).unwrap_err()
    }

    /// REQ-AWS-CFG-1, REQ-AWS-CFG-6
    #[test]
    fn without_a_file_everything_has_its_default() {
        let config = CloudConfig::load(None).unwrap();
        assert_eq!(config.configured_region(), None);
        assert!(!config.is_off_instance());
        assert_eq!(config.node_ip_families, [IpFamily::V4]);
        assert_eq!(
            config.health_probe,
            HealthProbe {
                mode: HealthProbeMode::ServiceNodePort,
                port: 10256,
                path: "/healthz".into()
            }
        );
        assert!(!config.nlb_security_group_managed && !config.disable_security_group_ingress);
        assert!(config.warnings.is_empty() && config.without_effect.is_empty());
    }

    /// REQ-AWS-CFG-2, REQ-AWS-CFG-3
    #[test]
    fn names_are_case_insensitive_and_unknown_ones_are_warned_about() {
        let config =
            load("[global]\nvpc = vpc-1\nFoo = 1\n[Other]\nx = 1\n[Global \"sub\"]\nVPC = no")
                .unwrap();
        assert_eq!(config.vpc, "vpc-1");
        assert_eq!(config.warnings.len(), 3, "{:?}", config.warnings);
        assert!(
            config.warnings[0].contains("aws.conf, line 3") && config.warnings[0].contains("Foo")
        );
    }

    /// REQ-AWS-CFG-4, REQ-AWS-CFG-5, REQ-AWS-CFG-7, REQ-AWS-CFG-33
    #[test]
    fn address_families_are_a_list_in_order() {
        use IpFamily::{V4, V6};
        for (text, want, warnings) in [
            ("NodeIPFamilies = ipv6", &[V6][..], 0),
            ("NodeIPFamilies = ipv6\nNodeIPFamilies = ipv4", &[V6, V4], 0),
            ("NodeIPFamilies = ipv4,ipv6", &[V4, V6], 1),
            ("NodeIPFamilies = ipv6\nNodeIPFamilies", &[V4], 0),
            ("NodeIPFamilies", &[V4], 0),
            ("NodeIPFamilies =", &[V4], 1),
            ("NodeIPFamilies = ipv6\nNodeIPFamilies = x", &[V6], 1),
        ] {
            let config = global(text);
            assert_eq!(config.node_ip_families, want, "{text}");
            assert_eq!(config.warnings.len(), warnings, "{text}");
        }
        assert!(refused("NodeIPFamilies = IPv4").contains("write ipv4 or ipv6"));
    }

    /// REQ-AWS-CFG-8, REQ-AWS-CFG-9
    #[test]
    fn the_region_is_derived_from_the_zone() {
        for (zone, region) in [
            ("us-west-2a", "us-west-2"),
            ("us-west-2-lax-1a", "us-west-2"),
            ("ap-northeast-2a", "ap-northeast-2"),
            ("us-gov-east-1a", "us-gov-east-1"),
            ("us-iso-east-1a", "us-iso-east-1"),
            ("us-isob-east-1a", "us-isob-east-1"),
        ] {
            let config = global(&format!("Zone = {zone}"));
            assert_eq!(config.configured_region().as_deref(), Some(region));
        }
        let both = global("Zone = us-east-1b\nRegion = eu-west-1");
        assert_eq!(both.configured_region().as_deref(), Some("us-east-1"));
        for zone in ["foo", "us-", "1-a", "us-east"] {
            assert!(
                refused(&format!("Zone = {zone}")).starts_with("invalid AZ: "),
                "{zone}"
            );
        }
    }

    /// REQ-AWS-CFG-10, REQ-AWS-CFG-11, REQ-AWS-CFG-12
    #[test]
    fn off_instance_mode_needs_vpc_cluster_and_subnet_or_role() {
        let role = "RoleARN = arn:aws:iam::123456789012:role/r";
        for (text, want) in [
            ("VPC=v\nSubnetID=s\nKubernetesClusterID=c".to_owned(), true),
            (format!("VPC=v\n{role}\nKubernetesClusterTag=c"), true),
            ("VPC=v\nKubernetesClusterID=c".to_owned(), false),
            ("VPC=v\nSubnetID=s".to_owned(), false),
            ("SubnetID=s\nKubernetesClusterID=c".to_owned(), false),
        ] {
            assert_eq!(global(&text).is_off_instance(), want, "{text}");
        }
    }

    /// REQ-AWS-CFG-13, REQ-AWS-CFG-25
    #[test]
    fn values_that_can_never_work_are_refused_at_start() {
        let error = refused("KubernetesClusterTag = a\nKubernetesClusterID = b");
        assert!(error.contains("clusterID tags did not match"), "{error}");
        assert!(refused("RoleARN = role/r").contains("is not an ARN"));
        assert_eq!(
            account_of_arn("arn:aws:iam::123456789012:role/r"),
            Some("123456789012")
        );
    }

    /// REQ-AWS-CFG-26
    #[test]
    fn the_security_group_mode_is_managed_or_nothing() {
        assert!(global("NLBSecurityGroupMode = Managed").nlb_security_group_managed);
        assert!(!global("NLBSecurityGroupMode =").nlb_security_group_managed);
        for mode in ["managed", "x"] {
            let error = refused(&format!("NLBSecurityGroupMode = {mode}"));
            assert!(error.contains("invalid NLB security group mode"), "{error}");
        }
    }

    /// REQ-AWS-CFG-27, REQ-AWS-CFG-28, REQ-AWS-CFG-35
    #[test]
    fn the_topology_pattern_is_a_regular_expression() {
        let config = global("SupportedTopologyInstanceTypePattern = t3.large");
        assert!(config.topology_pattern.is_match("t3.large"));
        assert!(!config.topology_pattern.is_match("trn2.48xlarge"));
        assert!(refused("SupportedTopologyInstanceTypePattern = (").contains("correct it"));
        let quoted = global("SupportedTopologyInstanceTypePattern = \"^p5\\\\.\"");
        assert_eq!(quoted.topology_pattern.as_str(), "^p5\\.");
        let error = refused("SupportedTopologyInstanceTypePattern = ^p5\\.");
        assert!(
            error.contains("line 2") && error.contains("double quotes"),
            "{error}"
        );
    }

    /// REQ-AWS-CFG-34, REQ-AWS-CFG-36
    #[test]
    fn booleans_and_numbers_are_gos() {
        for (text, want) in [
            ("", true),
            (" = On", true),
            (" = no", false),
            (" = 1", true),
        ] {
            let config = global(&format!("DisableSecurityGroupIngress{text}"));
            assert_eq!(config.disable_security_group_ingress, want);
        }
        for text in [" = maybe", " ="] {
            let error = refused(&format!("DisableSecurityGroupIngress{text}"));
            assert!(
                error.contains("line 2: [Global] DisableSecurityGroupIngress"),
                "{error}"
            );
        }
        let config =
            global("VPC = a\nVPC = b\nClusterServiceSharedLoadBalancerHealthProbePort = 0x2810");
        assert_eq!(
            (config.vpc.as_str(), config.health_probe.port),
            ("b", 10256)
        );
        for port in ["12a", "0x", "", "0x-1"] {
            refused(&format!(
                "ClusterServiceSharedLoadBalancerHealthProbePort = {port}"
            ));
        }
        assert!(refused("Region").contains("has no value"));
    }

    /// REQ-AWS-DIV-4
    #[test]
    fn released_load_balancers_are_deleted_only_on_demand() {
        assert!(!global("").delete_released_load_balancers);
        let config = global("DeleteReleasedLoadBalancers = true");
        assert!(config.delete_released_load_balancers);
        assert!(config.warnings.is_empty());
    }

    #[test]
    fn keys_of_features_to_come_are_accepted_and_named() {
        let config = global("RouteTableID = rtb-1\nElbSecurityGroup = sg-1");
        assert_eq!(config.without_effect, Vec::<String>::new());
        assert_eq!(config.route_table_id, "rtb-1");
    }

    #[test]
    fn an_unsupported_probe_mode_is_kept_and_warned_about() {
        let config = global("ClusterServiceLoadBalancerHealthProbeMode = shared");
        assert_eq!(
            config.health_probe.mode,
            HealthProbeMode::Unsupported("shared".into())
        );
        assert_eq!(config.warnings.len(), 1);
    }

    /// REQ-AWS-CFG-15, REQ-AWS-CFG-17, REQ-AWS-CFG-18, REQ-AWS-CFG-22
    #[test]
    fn overrides_are_read_section_by_section() {
        let text = "[ServiceOverride \"1\"]\nService = \"EC2   \"\nRegion=us-west-2\n\
                    URL = https://ec2.foo.bar\nSigningRegion = signing-r\n\
                    [ServiceOverride]\nService = KMS\nRegion = r\nURL = http://k\n\
                    SigningRegion = r\nSigningMethod = v4\nSigningName = n";
        let config = load(text).unwrap();
        assert_eq!(config.overrides.len(), 2);
        assert_eq!(config.overrides[0].service, "EC2");
        assert_eq!(config.overrides[0].signing_region, "signing-r");
        assert_eq!(config.overrides[1].label, "");
        assert_eq!(config.overrides[1].signing_name, "n");
        let error = load("[ServiceOverride \"x\"]\nService = EC2").unwrap_err();
        assert!(error.contains("service region is missing"), "{error}");
    }

    proptest! {
        #[test]
        fn no_file_makes_the_reader_panic(
            keys in proptest::collection::vec(
                (proptest::sample::select(KEYS), "( ?= ?)?[-0-9a-zA-Z:/., \"(\\\\]{0,16}"), 0..6),
        ) {
            let text: Vec<String> = keys
                .iter()
                .map(|(key, value)| match key.section {
                    Section::Global => format!("[{GLOBAL}]\n{}{value}\n", key.name),
                    Section::ServiceOverride => format!("[ServiceOverride \"1\"]\n{}{value}\n", key.name),
                })
                .collect();
            match load(&text.concat()) {
                Ok(config) => prop_assert!(!config.node_ip_families.is_empty()),
                Err(error) => prop_assert!(!error.trim().is_empty()),
            }
        }

        /// REQ-AWS-CFG-8
        #[test]
        fn a_region_is_what_the_go_managers_pattern_finds(
            zone in "([a-zA-Z]{0,3}-){0,3}[0-9a-z]{0,3}(-[a-z0-9]{1,3})?|.{0,8}",
        ) {
            let pattern = Regex::new("^([a-zA-Z]+-)+[0-9]+").unwrap();
            let want = pattern.find(&zone).map(|found| found.as_str().to_owned());
            prop_assert_eq!(region_of_zone(&zone), want);
        }

        #[test]
        fn the_account_is_the_fifth_part_of_an_arn(text in "(arn)?(:[a-z0-9]{0,3}){0,7}|.{0,16}") {
            let parts: Vec<&str> = text.split(':').collect();
            let is_arn = parts[0] == "arn" && parts.len() >= 6;
            prop_assert_eq!(account_of_arn(&text), is_arn.then(|| parts[4]));
        }

        /// REQ-AWS-CFG-34, REQ-AWS-CFG-36
        #[test]
        fn numbers_are_read_back_and_only_what_fits(number: i64) {
            let entry = |value: String| Entry {
                section: "global".to_owned(),
                subsection: None,
                key: "k".to_owned(),
                value: Some(value),
                line: 1,
            };
            let want = i32::try_from(number).ok();
            prop_assert_eq!(integer("f", &entry(number.to_string())).ok(), want);
            if number >= 0 {
                prop_assert_eq!(integer("f", &entry(format!("0x{number:x}"))).ok(), want);
            }
        }
    }
}
