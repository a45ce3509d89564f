//! Faults: what a test can make go wrong.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

use crate::{
    errors::ApiError,
    request::{Call, Verb},
};

/// Rules in force at a time: more is a test that forgot to clear them.
const MAX_RULES: usize = 1_000;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 409 Conflict: the object has been modified.
    Conflict,
    /// 410 Expired, as HTTP status.
    Gone,
    /// 403 Forbidden.
    Forbidden,
    /// 429 with `Retry-After` in seconds.
    TooManyRequests(u64),
    /// 500.
    Internal,
    /// 503, with `Retry-After` in seconds if given.
    Unavailable(Option<u64>),
    /// The change is made, then the client gets 504.
    TimeoutWithEffect,
    /// The connection breaks before anything is done.
    Drop,
    /// The change is made, then the connection breaks.
    DropWithEffect,
    /// The request is answered, but only after this time.
    Delay(Duration),
}

/// Which requests a fault strikes; an empty field means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The verb.
    pub verb: Option<Verb>,
    /// Plural (`nodes`), or with group (`leases.coordination.k8s.io`).
    pub resource: Option<String>,
    /// Subresource; `Some("")` means the main resource only.
    pub subresource: Option<String>,
    /// Name of the object. Creates carry no name in their path and never match one.
    pub name: Option<String>,
    /// Start of the User-Agent header.
    pub user_agent: Option<String>,
}

impl Target {
    /// Any request.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this verb on this resource.
    pub fn new(verb: Verb, resource: impl Into<String>) -> Self {
        Self {
            verb: Some(verb),
            resource: Some(resource.into()),
            ..Self::default()
        }
    }

    /// Narrows to a subresource; `""` is the main resource.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// Narrows to an object.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Narrows to a client.
    #[must_use]
    pub fn from_agent(mut self, start: impl Into<String>) -> Self {
        self.user_agent = Some(start.into());
        self
    }

    fn matches(&self, call: &Call) -> bool {
        let is = |want: &Option<String>, have: &str| want.as_deref().is_none_or(|w| w == have);
        self.verb.is_none_or(|v| v == call.verb)
            && (is(&self.resource, call.resource.plural)
                || is(&self.resource, &call.resource.qualified()))
            && is(
                &self.subresource,
                call.subresource.as_deref().unwrap_or_default(),
            )
            && is(&self.name, call.name.as_deref().unwrap_or_default())
            && self
                .user_agent
                .as_deref()
                .is_none_or(|start| call.user_agent.starts_with(start))
    }
}

/// How the server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections are refused or break.
    Refused,
    /// A load balancer in front answers 503.
    Status503,
}

/// How a watch from a forgotten version is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiredStyle {
    /// 200, then an ERROR event with code 410: what kube-apiserver does.
    #[default]
    InStream,
    /// HTTP 410: what aggregated servers and proxies may do.
    Http,
}

#[derive(Debug)]
struct Rule {
    left: u64,
    target: Target,
    fault: Fault,
}

#[derive(Debug, Default)]
pub(crate) struct FaultState {
    rules: Vec<Rule>,
    outage: Option<(Option<Instant>, Outage)>,
    pub(crate) expired_style: ExpiredStyle,
    delays: BTreeMap<String, Duration>,
    default_delay: Duration,
}

impl FaultState {
    /// Adds a rule; the oldest one goes when there are too many.
    pub(crate) fn add(&mut self, times: u64, target: Target, fault: Fault) {
        if self.rules.len() >= MAX_RULES {
            self.rules.remove(0);
        }
        self.rules.push(Rule {
            left: times,
            target,
            fault,
        });
    }

    pub(crate) fn set_outage(&mut self, until: Option<Instant>, outage: Option<Outage>) {
        self.outage = outage.map(|outage| (until, outage));
    }

    /// The outage in force, if any.
    pub(crate) fn outage(&self, now: Instant) -> Option<Outage> {
        let (until, outage) = self.outage?;
        until.is_none_or(|end| now < end).then_some(outage)
    }

    /// The fault of the first rule that matches; it is used up by one.
    pub(crate) fn strike(&mut self, call: &Call) -> Option<Fault> {
        let index = self
            .rules
            .iter()
            .position(|rule| rule.left > 0 && rule.target.matches(call))?;
        let rule = self.rules.get_mut(index)?;
        rule.left -= 1;
        let fault = rule.fault;
        self.rules.retain(|rule| rule.left > 0);
        Some(fault)
    }

    /// Strikes still to come.
    pub(crate) fn pending(&self) -> u64 {
        self.rules.iter().map(|rule| rule.left).sum()
    }

    pub(crate) fn set_delay(&mut self, resource: Option<&str>, delay: Duration) {
        match resource {
            Some(resource) => {
                self.delays.insert(resource.to_owned(), delay);
            }
            None => {
                self.delays.clear();
                self.default_delay = delay;
            }
        }
    }

    /// How late changes of a kind arrive at watches.
    pub(crate) fn delay(&self, plural: &str) -> Duration {
        self.delays
            .get(plural)
            .copied()
            .unwrap_or(self.default_delay)
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The error of a fault that is answered without doing anything.
pub(crate) fn refusal(fault: Fault, call: &Call) -> Option<ApiError> {
    let name = call.name.as_deref().unwrap_or_default();
    match fault {
        Fault::Conflict => Some(ApiError::modified(call.resource, name)),
        Fault::Gone => Some(ApiError::expired("The resourceVersion is too old.")),
        Fault::Forbidden => Some(ApiError::forbidden(
            call.resource,
            name,
            "injected by a fault rule",
        )),
        Fault::TooManyRequests(seconds) => Some(ApiError::too_many_requests(seconds)),
        Fault::Internal => Some(ApiError::internal("injected by a fault rule")),
        Fault::Unavailable(seconds) => Some(ApiError::unavailable(seconds)),
        Fault::TimeoutWithEffect | Fault::Drop | Fault::DropWithEffect | Fault::Delay(_) => None,
    }
}
