//! The state of the AWS side: resources, ids, and what the passing of time changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::model::{Instance, InstanceState, Interface, Snapshot, Tags};
use super::query::Params;
use crate::clock::later;
use crate::control::{CloudError, PageFault};

/// EC2 and ELBv2 allow this many tags on a resource.
pub(crate) const MAX_TAGS: usize = 50;

/// An availability, local or wavelength zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Such as `us-west-2a`.
    pub name: String,
    /// Such as `usw2-az1`.
    pub id: String,
    /// `availability-zone`, `local-zone` or `wavelength-zone`.
    pub kind: String,
}

impl Zone {
    /// A zone.
    pub fn new(name: impl Into<String>, id: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            id: id.into(),
            kind: kind.into(),
        }
    }
}

/// How the emulated account looks at the start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of all ids and of every random order.
    pub seed: u64,
    /// Region.
    pub region: String,
    /// Account number.
    pub account: String,
    /// The cloud's wall clock at the start.
    pub start: Timestamp,
    /// Zones; if empty, three availability zones and one local zone of the region.
    pub zones: Vec<Zone>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            region: "us-west-2".to_owned(),
            account: "123456789012".to_owned(),
            // 2026-01-01T00:00:00Z
            start: Timestamp::constant(1_767_225_600, 0),
            zones: Vec::new(),
        }
    }
}

/// Behaviour that differs between AWS accounts, or that tests want to be slow or fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From CreateLoadBalancer to state `active`.
    pub lb_provisioning: Duration,
    /// How long a deleted load balancer stays visible to reads.
    pub lb_deletion_lag: Duration,
    /// How long the interfaces of a deleted load balancer keep holding its security groups.
    pub eni_release_delay: Duration,
    /// How long a deregistered target drains; `None` takes the attribute of its target group.
    pub deregistration_delay: Option<Duration>,
    /// From registration to the first health state.
    pub target_initial: Duration,
    /// How long an instance stays pending, stopping or shutting-down.
    pub instance_transition: Duration,
    /// How long terminated instances stay visible, about an hour at AWS.
    pub terminated_visible: Duration,
    /// Refuse another health check protocol on an existing target group (CASE-LB-25).
    pub strict_health_check_change: bool,
    /// Largest page of any listing, also of those that ask for no pages.
    pub page_cap: Option<usize>,
    /// DescribeInstances returns interfaces in random order (CASE-NODE-03).
    pub random_eni_order: bool,
    /// The metadata service demands a session token.
    pub imds_token_required: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lb_provisioning: Duration::from_secs(120),
            lb_deletion_lag: Duration::ZERO,
            eni_release_delay: Duration::ZERO,
            deregistration_delay: None,
            target_initial: Duration::ZERO,
            instance_transition: Duration::ZERO,
            terminated_visible: Duration::from_secs(3600),
            strict_health_check_change: true,
            page_cap: None,
            random_eni_order: false,
            imds_token_required: true,
        }
    }
}

/// Quotas, with the defaults of a fresh account where the number matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Quotas {
    /// Network load balancers.
    pub load_balancers: usize,
    /// Target groups.
    pub target_groups: usize,
    /// Targets per target group.
    pub targets_per_target_group: usize,
    /// Listeners per load balancer.
    pub listeners_per_load_balancer: usize,
    /// Security groups.
    pub security_groups: usize,
    /// Ingress rules per security group, for IPv4 and IPv6 each; a group as a source counts in both.
    pub rules_per_security_group: usize,
    /// Routes per route table, for IPv4 and IPv6 each.
    pub routes_per_table: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            load_balancers: 50,
            target_groups: 3000,
            targets_per_target_group: 500,
            listeners_per_load_balancer: 50,
            security_groups: 2500,
            rules_per_security_group: 60,
            routes_per_table: 50,
        }
    }
}

/// Everything behind the one lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Timestamp,
    pub(crate) seed: u64,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) zones: Vec<Zone>,
    pub(crate) rng: fastrand::Rng,
    pub(crate) settings: Settings,
    pub(crate) quotas: Quotas,
    /// The resources.
    pub(crate) all: Snapshot,
    /// Deleted load balancers that reads still show.
    pub(crate) ghosts: Vec<super::model::LoadBalancer>,
    /// Ids invisible to reads until the given time.
    hidden: BTreeMap<String, Timestamp>,
    /// The instance that asks the metadata service.
    pub(crate) self_instance: Option<String>,
    /// Certificates that do not exist, though their ARN looks right.
    pub(crate) missing_certificates: Vec<String>,
    /// Public addresses handed out so far.
    pub(crate) public_ips: u32,
    /// No deadline lies before this time, so that reads need not search for what is due.
    wake: Timestamp,
    /// Used addresses by subnet; `None` after a removal, until it is asked for.
    pub(crate) used_addresses: Option<BTreeMap<String, BTreeSet<Ipv4Addr>>>,
    /// The address given out last in each subnet.
    pub(crate) last_address: BTreeMap<String, u32>,
    /// Fault of the call in work.
    pub(crate) page_fault: Option<PageFault>,
}

impl State {
    pub(crate) fn new(options: Options) -> Self {
        let zones = if options.zones.is_empty() {
            default_zones(&options.region)
        } else {
            options.zones
        };
        Self {
            now: options.start,
            seed: options.seed,
            region: options.region,
            account: options.account,
            zones,
            rng: fastrand::Rng::with_seed(options.seed),
            settings: Settings::default(),
            quotas: Quotas::default(),
            all: Snapshot::default(),
            ghosts: Vec::new(),
            hidden: BTreeMap::new(),
            self_instance: None,
            missing_certificates: Vec::new(),
            public_ips: 0,
            wake: Timestamp::MIN,
            used_addresses: None,
            last_address: BTreeMap::new(),
            page_fault: None,
        }
    }

    /// To be called by whatever may set a deadline.
    pub(crate) fn touch(&mut self) {
        self.wake = Timestamp::MIN;
    }

    /// Brings the state to `now`: finishes what was due.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = now;
        if now < self.wake {
            return;
        }
        self.hidden.retain(|_, until| *until > now);
        self.ghosts
            .retain(|lb| lb.ghost_until.is_some_and(|until| until > now));
        self.retain_interfaces(|eni| eni.release_at.is_none_or(|at| at > now));
        for group in self.all.target_groups.values_mut() {
            group
                .targets
                .retain(|target| target.gone_at.is_none_or(|at| at > now));
        }
        let due = self.all.instances.values();
        let due = due.filter_map(|instance| {
            instance
                .next
                .filter(|(at, _)| *at <= now)
                .map(|_| instance.id.clone())
        });
        for id in due.collect::<Vec<_>>() {
            self.finish_transition(&id);
        }
        let old = self.settings.terminated_visible;
        let stays =
            |instance: &Instance| instance.terminated_at.is_none_or(|at| later(at, old) > now);
        self.all.instances.retain(|_, instance| stays(instance));
        self.wake = self.next_deadline().unwrap_or(Timestamp::MAX);
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let hidden = self.hidden.values().copied();
        let ghosts = self.ghosts.iter().filter_map(|lb| lb.ghost_until);
        let interfaces = self
            .all
            .interfaces
            .values()
            .filter_map(|eni| eni.release_at);
        let groups = self.all.target_groups.values();
        let targets =
            groups.flat_map(|group| group.targets.iter().filter_map(|target| target.gone_at));
        let visible = self.settings.terminated_visible;
        let instances = self.all.instances.values().filter_map(|instance| {
            let next = instance.next.map(|(at, _)| at);
            next.or_else(|| instance.terminated_at.map(|at| later(at, visible)))
        });
        hidden
            .chain(ghosts)
            .chain(interfaces)
            .chain(targets)
            .chain(instances)
            .min()
    }

    /// Drops interfaces, and with them the knowledge of the used addresses.
    pub(crate) fn retain_interfaces(&mut self, mut keep: impl FnMut(&Interface) -> bool) {
        let before = self.all.interfaces.len();
        self.all.interfaces.retain(|_, eni| keep(eni));
        if self.all.interfaces.len() != before {
            self.used_addresses = None;
        }
    }

    /// Stores an interface.
    pub(crate) fn store_interface(&mut self, eni: Interface) {
        if let Some(used) = &mut self.used_addresses {
            used.entry(eni.subnet_id.clone())
                .or_default()
                .extend(&eni.private_ips);
        }
        self.all.interfaces.insert(eni.id.clone(), eni);
    }

    fn finish_transition(&mut self, id: &str) {
        let fresh_ip = self.fresh_public_ip(id);
        let Some(instance) = self.all.instances.get_mut(id) else {
            return;
        };
        let Some((at, state)) = instance.next.take() else {
            return;
        };
        instance.state = state;
        if state == InstanceState::Running && instance.public_ip.is_none() {
            instance.public_ip = fresh_ip;
        }
        if state == InstanceState::Stopped {
            instance.public_ip = None;
        }
        if state == InstanceState::Terminated {
            instance.terminated_at = Some(at);
            instance.private_dns_name.clear();
            instance.private_ip = None;
            instance.public_ip = None;
            instance.groups.clear();
            let of_instance = |eni: &Interface| {
                eni.attachment
                    .as_ref()
                    .is_some_and(|attachment| attachment.instance_id.as_deref() == Some(id))
            };
            self.retain_interfaces(|eni| !of_instance(eni));
        }
    }

    /// A stopped instance loses its public address and gets another one when it starts.
    fn fresh_public_ip(&mut self, id: &str) -> Option<Ipv4Addr> {
        let instance = self.all.instances.get(id)?;
        let starts = instance
            .next
            .is_some_and(|(_, state)| state == InstanceState::Running);
        let needed = starts && instance.wants_public_ip && instance.public_ip.is_none();
        needed.then(|| self.new_public_ip())
    }

    /// Sixteen hexadecimal digits.
    pub(crate) fn hex16(&mut self) -> String {
        format!("{:016x}", self.rng.u64(..))
    }

    /// A new EC2 id such as `i-0123456789abcdef0`.
    pub(crate) fn new_id(&mut self, prefix: &str) -> String {
        format!("{prefix}-0{}", self.hex16())
    }

    /// A request id in the form of a UUID.
    pub(crate) fn request_id(&mut self) -> String {
        let (a, b) = (self.rng.u64(..), self.rng.u64(..));
        format!(
            "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
            a >> 32,
            (a >> 16) & 0xffff,
            a & 0xfff,
            b >> 52,
            b & 0xffff_ffff_ffff
        )
    }

    /// `aws`, `aws-cn` or `aws-us-gov`.
    pub(crate) fn partition(&self) -> &'static str {
        match self.region.get(..3) {
            Some("cn-") => "aws-cn",
            Some("us-") if self.region.starts_with("us-gov-") => "aws-us-gov",
            _ => "aws",
        }
    }

    /// An ELBv2 ARN.
    pub(crate) fn elb_arn(&self, resource: &str) -> String {
        let (partition, region, account) = (self.partition(), &self.region, &self.account);
        format!("arn:{partition}:elasticloadbalancing:{region}:{account}:{resource}")
    }

    /// Suffix of private DNS names.
    pub(crate) fn private_domain(&self) -> String {
        if self.region == "us-east-1" {
            "ec2.internal".to_owned()
        } else {
            format!("{}.compute.internal", self.region)
        }
    }

    /// Whether reads see this id.
    pub(crate) fn visible(&self, id: &str) -> bool {
        !self.hidden.contains_key(id)
    }

    pub(crate) fn hide(&mut self, id: &str, duration: Duration) {
        self.hidden.insert(id.to_owned(), later(self.now, duration));
    }

    /// Cuts one page out of sorted items. The token names the last item of the page before, so that
    /// pages stay right while other items come and go.
    pub(crate) fn page<T>(
        &self,
        items: Vec<(String, T)>,
        token: Option<&str>,
        size: Option<usize>,
    ) -> Result<(Vec<T>, Option<String>), CloudError> {
        let (number, after) = match token.filter(|token| !token.is_empty()) {
            Some(token) => {
                let parsed = parse_token(token);
                let (number, after) = parsed.ok_or_else(|| invalid_token(token))?;
                (number, Some(after))
            }
            None => (1, None),
        };
        let size = match (size, self.settings.page_cap) {
            (Some(size), Some(cap)) => size.min(cap),
            (size, cap) => size.or(cap).unwrap_or(usize::MAX),
        };
        let mut rest = items
            .into_iter()
            .filter(|(key, _)| after.as_ref().is_none_or(|after| key > after))
            .peekable();
        let mut page = Vec::new();
        let mut last = String::new();
        while page.len() < size.max(1) {
            let Some((key, item)) = rest.next() else {
                break;
            };
            last = key;
            page.push(item);
        }
        let mut next = rest.peek().map(|_| encode_token(number + 1, &last));
        match self.page_fault {
            Some(PageFault::Empty(fault)) if fault == number => page.clear(),
            Some(PageFault::Last(fault)) if fault == number => next = None,
            _ => {}
        }
        Ok((page, next))
    }
}

fn invalid_token(token: &str) -> CloudError {
    CloudError::new(
        "InvalidNextToken",
        format!("The token '{token}' is invalid"),
    )
}

fn encode_token(page: usize, key: &str) -> String {
    let text = format!("{page}:{key}");
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_token(token: &str) -> Option<(usize, String)> {
    let pairs = token.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    let text = String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()?;
    let (page, key) = text.split_once(':')?;
    Some((page.parse().ok()?, key.to_owned()))
}

/// `us-west-2` → `us-west-2a`/`usw2-az1` and so on, plus a local zone.
fn default_zones(region: &str) -> Vec<Zone> {
    let code = region_code(region);
    let zone = |(number, letter): (usize, char)| {
        let id = format!("{code}-az{}", number + 1);
        Zone::new(format!("{region}{letter}"), id, "availability-zone")
    };
    let mut zones: Vec<Zone> = ['a', 'b', 'c'].into_iter().enumerate().map(zone).collect();
    zones.push(Zone::new(
        format!("{region}-lax-1a"),
        format!("{code}-lax1-az1"),
        "local-zone",
    ));
    zones
}

fn region_code(region: &str) -> String {
    let part = |part: &str| match part {
        "north" => "n".to_owned(),
        "south" => "s".to_owned(),
        "east" => "e".to_owned(),
        "west" => "w".to_owned(),
        "central" => "c".to_owned(),
        "northeast" => "ne".to_owned(),
        "northwest" => "nw".to_owned(),
        "southeast" => "se".to_owned(),
        "southwest" => "sw".to_owned(),
        "gov" => "g".to_owned(),
        other => other.to_owned(),
    };
    region.split('-').map(part).collect()
}

/// `Tag.N.Key` / `Tag.N.Value`, or the `member` form of ELBv2.
pub(crate) fn tags_of(params: &Params, prefix: &str) -> Tags {
    let pair = |tag: Params| {
        let value = tag.get("Value").unwrap_or_default().to_owned();
        tag.get("Key").map(|key| (key.to_owned(), value))
    };
    params
        .structs(prefix)
        .into_iter()
        .filter_map(pair)
        .collect()
}

/// EC2 and ELBv2 write times with milliseconds.
pub(crate) fn iso(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_ids_follow_the_region() {
        assert_eq!(region_code("us-west-2"), "usw2");
        assert_eq!(region_code("ap-southeast-1"), "apse1");
        assert_eq!(default_zones("us-east-1")[1].id, "use1-az2");
    }

    #[test]
    fn pages_survive_removed_items_and_obey_page_faults() {
        let mut state = State::new(Options::default());
        let items = |names: &[&str]| {
            names
                .iter()
                .map(|name| ((*name).to_owned(), (*name).to_owned()))
                .collect()
        };
        let (page, next) = state
            .page(items(&["a", "b", "c", "d"]), None, Some(2))
            .unwrap();
        assert_eq!(page, ["a", "b"]);
        let next = next.unwrap();
        let (page, end) = state
            .page(items(&["a", "c", "d"]), Some(&next), Some(2))
            .unwrap();
        assert_eq!((page, end), (vec!["c".to_owned(), "d".to_owned()], None));
        state.page_fault = Some(PageFault::Empty(1));
        let (page, next) = state.page(items(&["a", "b", "c"]), None, Some(2)).unwrap();
        assert!(page.is_empty() && next.is_some());
        state.page_fault = Some(PageFault::Last(1));
        let (page, next) = state.page(items(&["a", "b", "c"]), None, Some(2)).unwrap();
        assert!(page.len() == 2 && next.is_none());
        let bad = state.page(items(&["a"]), Some("zz"), None).unwrap_err();
        assert_eq!(bad.code, "InvalidNextToken");
    }
}
