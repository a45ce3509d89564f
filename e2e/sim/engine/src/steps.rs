//! What happens in a run: people, kubelets and clouds at work, and what goes wrong.

use std::time::Duration;

use ccm_kubesim::Outage;

use crate::{
    cloud::model::PartKind,
    fate::{Aim, Blow},
    process::Hush,
};

/// Which of the managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The one that leads.
    Leader,
    /// One that stands by; the only one where there is no other.
    Standby,
}

/// Work of people, kubelets, schedulers and the cloud itself. A step that makes no sense in the
/// state it meets does nothing: so any part of a plan is a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A machine starts and its Node registers.
    Join(&'static str),
    /// A machine is shut down; its Node becomes unknown.
    Stop(&'static str),
    /// A machine that was shut down starts again; its Node becomes Ready.
    Start(&'static str),
    /// A machine goes away; its Node becomes unknown.
    Terminate(&'static str),
    /// A machine goes away, its Node is deleted, and another machine joins under the name.
    Replace(&'static str),
    /// A machine goes away and its Node is deleted by people.
    Drain(&'static str),
    /// A Node is not Ready although its machine runs.
    NotReady(&'static str),
    /// A Node is Ready, if its machine runs.
    Ready(&'static str),
    /// A Node is kept out of load balancers, or let in again.
    Exclude(&'static str, bool),
    /// A Service of type LoadBalancer is created.
    Create(&'static str, &'static [i32]),
    /// A Service of another load balancer class is created.
    CreateForeign(&'static str),
    /// The ports of a Service change.
    Ports(&'static str, &'static [i32]),
    /// The allowed clients of a Service change.
    Ranges(&'static str, &'static [&'static str]),
    /// An annotation of a Service changes.
    Annotate(&'static str, &'static str),
    /// A Service becomes a LoadBalancer (`true`) or a ClusterIP.
    Retype(&'static str, bool),
    /// A Service is deleted.
    Delete(&'static str),
    /// A Service is deleted, and created again as soon as its name is free.
    Recreate(&'static str, &'static [i32]),
    /// People take our finalizer from a Service.
    StripFinalizer(&'static str),
    /// People clear the status of a Service.
    ClearStatus(&'static str),
    /// A route to a Node is deleted in the cloud.
    BreakRoute(&'static str),
    /// A part of a load balancer is deleted in the cloud, with what refers to it.
    Break(&'static str, PartKind),
}

/// Something that goes wrong, or comes right again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// An operation will be struck.
    Strike(Aim, Blow),
    /// The manager that leads dies now.
    Crash,
    /// The manager that leads is told to end (`SIGTERM`), as by a rolling update.
    Shutdown,
    /// The manager that leads is stopped (`SIGSTOP`) for a time.
    Freeze(Duration),
    /// All managers stop for a time, as on a suspended host, and the clock jumps: nothing of them
    /// runs in between. Another one, which runs elsewhere, takes the lease if it runs out meanwhile,
    /// and is never heard of again.
    Suspend(Duration),
    /// The watches of a resource of one manager are disturbed for a time: what it knows is older
    /// than what the others know.
    Hush(Who, &'static str, Hush, Duration),
    /// Changes of a kind reach the watches this much later.
    DelayWatches(&'static str, Duration),
    /// All watches break.
    CutWatches,
    /// All watches end well.
    EndWatches,
    /// The API server forgets its history: watches and lists begin anew.
    Compact,
    /// The API server is away for a time.
    Away(Duration, Outage),
    /// Reads of the cloud lag behind.
    CloudLag(Duration),
    /// Every cloud call fails for a time.
    CloudAway(Duration),
    /// The managers' wall clocks jump: they are wrong by so many seconds.
    Clock(i64),
    /// A watch from a forgotten version is refused by an HTTP status, not by an event.
    ExpireByHttp,
}

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Work.
    Do(Step),
    /// Trouble.
    Have(Trouble),
    /// The world waits until the desired state is reached.
    Settle,
}

/// An event and the time that passes before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Since the event before.
    pub after: Duration,
    /// The event.
    pub event: Event,
}

impl Timed {
    /// Work after some milliseconds.
    pub const fn work(after: u64, step: Step) -> Self {
        Self {
            after: Duration::from_millis(after),
            event: Event::Do(step),
        }
    }

    /// Trouble after some milliseconds.
    pub const fn trouble(after: u64, trouble: Trouble) -> Self {
        Self {
            after: Duration::from_millis(after),
            event: Event::Have(trouble),
        }
    }

    /// Waits until the desired state is reached.
    pub const fn settle() -> Self {
        Self {
            after: Duration::ZERO,
            event: Event::Settle,
        }
    }
}
