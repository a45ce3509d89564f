//! `[ServiceOverride "…"]`: other endpoints (specification: aws §1.2, §1.3).

use std::collections::BTreeSet;

use super::ConfigError;

const PREFIX: &str = "unable to validate custom endpoint overrides: ";

/// A client whose endpoint can be overridden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointService {
    /// EC2.
    Ec2,
    /// Classic load balancers.
    ClassicElb,
    /// Network load balancers.
    Elbv2,
    /// Key management: accepted, never called.
    Kms,
    /// The instance metadata service.
    Imds,
}

impl EndpointService {
    /// The value of `Service` that means this client.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Ec2 => "EC2",
            Self::ClassicElb => "Elastic Load Balancing",
            Self::Elbv2 => "Elastic Load Balancing v2",
            Self::Kms => "KMS",
            Self::Imds => "ec2imds",
        }
    }

    /// The clients that a value of `Service` means. The historic names of the first SDK, in which
    /// both kinds of load balancers had one name, are aliases.
    fn of(name: &str) -> &'static [Self] {
        match name {
            "EC2" => &[Self::Ec2],
            "Elastic Load Balancing" => &[Self::ClassicElb],
            "Elastic Load Balancing v2" => &[Self::Elbv2],
            "KMS" => &[Self::Kms],
            "ec2imds" => &[Self::Imds],
            _ => match name.to_ascii_lowercase().as_str() {
                "ec2" => &[Self::Ec2],
                "elasticloadbalancing" => &[Self::ClassicElb, Self::Elbv2],
                "elasticloadbalancingv2" | "elastic load balancing v2" => &[Self::Elbv2],
                "elastic load balancing" => &[Self::ClassicElb],
                "kms" => &[Self::Kms],
                _ => &[],
            },
        }
    }
}

/// One override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceOverride {
    /// The section's label.
    pub label: String,
    /// `Service`.
    pub service: String,
    /// `Region`: must be the client's for an effect.
    pub region: String,
    /// `URL`.
    pub url: String,
    /// `SigningRegion`.
    pub signing_region: String,
    /// `SigningName`; empty means the SDK's.
    pub signing_name: String,
}

impl ServiceOverride {
    /// Whether it is for this client in this region.
    pub fn applies(&self, client: EndpointService, region: &str) -> bool {
        EndpointService::of(&self.service).contains(&client)
            && (client == EndpointService::Imds || self.region == region)
    }

    fn validate(&mut self) -> Result<(), ConfigError> {
        let label = &self.label;
        let missing = |what: String| {
            Err(ConfigError(format!(
                "{PREFIX}{what} in override {label}; set it in [ServiceOverride {label:?}]"
            )))
        };
        self.service = self.service.trim().to_owned();
        self.region = self.region.trim().to_owned();
        self.url = self.url.trim().to_owned();
        self.signing_region = self.signing_region.trim().to_owned();
        if self.service.is_empty() {
            return missing("service name is missing [Service is \"\"]".to_owned());
        }
        if self.region.is_empty() {
            return missing("service region is missing [Region is \"\"]".to_owned());
        }
        if self.url.is_empty() {
            return missing("url is missing [URL is \"\"]".to_owned());
        }
        if self.signing_region.is_empty() {
            return missing("signingRegion is missing [SigningRegion is \"\"]".to_owned());
        }
        if !is_url(&self.url) {
            return Err(ConfigError(format!(
                "{PREFIX}could not parse override URL {:?} in override {label}; write \
                 https://host[:port][/path]",
                self.url
            )));
        }
        Ok(())
    }
}

/// Trims and checks all; the warnings.
pub(super) fn validate(overrides: &mut [ServiceOverride]) -> Result<Vec<String>, ConfigError> {
    let mut seen = BTreeSet::new();
    let mut warnings = Vec::new();
    for one in overrides {
        one.validate()?;
        if !seen.insert((one.service.clone(), one.region.clone())) {
            return Err(ConfigError(format!(
                "{PREFIX}duplicate entry found for service override [{}] ({} in {}); keep one",
                one.label, one.service, one.region
            )));
        }
        let clients = EndpointService::of(&one.service);
        let known = "EC2, Elastic Load Balancing, Elastic Load Balancing v2, KMS, ec2imds";
        if clients.is_empty() {
            warnings.push(format!(
                "[ServiceOverride {:?}] has no effect: Service {:?} is no client of this provider; \
                 use one of: {known}",
                one.label, one.service
            ));
        } else if !clients.iter().any(|client| client.id() == one.service) {
            warnings.push(format!(
                "[ServiceOverride {:?}]: Service {:?} is a historic name and is understood as {}; \
                 write one of: {known}",
                one.label,
                one.service,
                clients
                    .iter()
                    .map(|c| c.id())
                    .collect::<Vec<_>>()
                    .join(" and ")
            ));
        }
    }
    Ok(warnings)
}

/// An overriding URL for a client in a region that never comes up is worth a warning once the
/// region is known.
pub fn unmatched(overrides: &[ServiceOverride], region: &str) -> Vec<String> {
    overrides
        .iter()
        .filter(|one| {
            let clients = EndpointService::of(&one.service);
            !clients.is_empty() && !clients.iter().any(|client| one.applies(*client, region))
        })
        .map(|one| {
            format!(
                "[ServiceOverride {:?}] has no effect: its Region {:?} is not the client region \
                 {region:?}",
                one.label, one.region
            )
        })
        .collect()
}

fn is_url(text: &str) -> bool {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        let host = rest.split('/').next().unwrap_or_default();
        let port_fits = match host.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok(),
            _ => true,
        };
        !host.is_empty()
            && !host.starts_with(':')
            && port_fits
            && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '%')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(service: &str, region: &str) -> ServiceOverride {
        ServiceOverride {
            label: "1".into(),
            service: service.into(),
            region: region.into(),
            url: "https://ec2.foo.bar".into(),
            signing_region: "signing-r".into(),
            signing_name: String::new(),
        }
    }

    /// REQ-AWS-CFG-15
    #[test]
    fn every_missing_item_is_named_with_the_label() {
        for (change, what) in [
            (
                (|o| o.service = " ".into()) as fn(&mut ServiceOverride),
                "service name is missing [Service is \"\"] in override 1",
            ),
            (
                |o| o.region = String::new(),
                "service region is missing [Region is \"\"] in override 1",
            ),
            (
                |o| o.url = " ".into(),
                "url is missing [URL is \"\"] in override 1",
            ),
            (
                |o| o.signing_region = " ".into(),
                "signingRegion is missing [SigningRegion is \"\"] in override 1",
            ),
        ] {
            let mut broken = one("EC2", "us-west-2");
            change(&mut broken);
            let error = validate(&mut [broken]).unwrap_err().to_string();
            assert!(error.starts_with(PREFIX) && error.contains(what), "{error}");
        }
    }

    /// REQ-AWS-CFG-16, REQ-AWS-CFG-17
    #[test]
    fn service_and_region_together_are_unique() {
        let error = validate(&mut [one("EC2", "a"), one("EC2 ", "a")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("duplicate entry found for service override [1] (EC2 in a)"),
            "{error}"
        );
        assert_eq!(
            validate(&mut [one("EC2", "a"), one("EC2", "b")]),
            Ok(vec![])
        );
        assert_eq!(
            validate(&mut [one("EC2", "a"), one("KMS", "b")]),
            Ok(vec![])
        );
    }

    /// REQ-AWS-CFG-18, REQ-AWS-CFG-19
    #[test]
    fn an_override_is_for_its_service_and_region() {
        let mut all = [one("EC2   ", "us-west-2")];
        validate(&mut all).unwrap();
        assert!(all[0].applies(EndpointService::Ec2, "us-west-2"));
        assert!(!all[0].applies(EndpointService::Ec2, "eu-west-1"));
        assert!(!all[0].applies(EndpointService::Elbv2, "us-west-2"));
        assert_eq!(unmatched(&all, "us-west-2"), Vec::<String>::new());
        assert!(unmatched(&all, "eu-west-1")[0].contains("is not the client region"));
        assert!(one("ec2imds", "anywhere").applies(EndpointService::Imds, "us-west-2"));
    }

    /// REQ-AWS-CFG-20
    #[test]
    fn historic_names_are_aliases_with_a_warning() {
        for (name, clients) in [
            ("ec2", &[EndpointService::Ec2][..]),
            (
                "elasticloadbalancing",
                &[EndpointService::ClassicElb, EndpointService::Elbv2],
            ),
            ("ElasticLoadBalancingV2", &[EndpointService::Elbv2]),
        ] {
            let mut all = [one(name, "us-west-2")];
            let warnings = validate(&mut all).unwrap();
            assert!(warnings[0].contains("historic name"), "{warnings:?}");
            assert!(clients.iter().all(|c| all[0].applies(*c, "us-west-2")));
        }
        let warnings = validate(&mut [one("s3", "us-west-2")]).unwrap();
        assert!(warnings[0].contains("has no effect"), "{warnings:?}");
    }

    /// REQ-AWS-CFG-38
    #[test]
    fn an_unparsable_url_is_refused_at_start() {
        for url in [
            "localhost:4566",
            "https://",
            "https://:80",
            "http://a b",
            "http://a:port",
            "%",
        ] {
            let mut all = [ServiceOverride {
                url: url.into(),
                ..one("EC2", "a")
            }];
            let error = validate(&mut all).unwrap_err().to_string();
            assert!(
                error.contains("could not parse override URL"),
                "{url}: {error}"
            );
        }
        for url in [
            "http://localhost:4566",
            "https://a.b/c",
            "http://[::1]",
            "http://[::1]:80",
        ] {
            let mut all = [ServiceOverride {
                url: url.into(),
                ..one("EC2", "a")
            }];
            assert_eq!(validate(&mut all), Ok(vec![]), "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_url_makes_the_check_panic(text in "(https?://)?[]\\[a-z0-9:/.% ]{0,20}|.{0,20}") {
            let fine = is_url(&text);
            prop_assert!(!fine || text.starts_with("http"));
        }

        #[test]
        fn hosts_with_ports_and_paths_are_urls(
            address: std::net::IpAddr, port: u16,
            name in "[a-z][a-z0-9.-]{0,12}", path in "(/[a-z0-9]{0,4}){0,3}",
        ) {
            let address = std::net::SocketAddr::new(address, port);
            let with_address = format!("http://{address}{path}");
            let with_name = format!("https://{name}{path}");
            prop_assert!(is_url(&with_address) && is_url(&with_name));
            let (with_port, bare) = (format!("https://{name}:{port}{path}"), format!("{name}{path}"));
            prop_assert!(is_url(&with_port) && !is_url(&bare));
        }
    }
}
