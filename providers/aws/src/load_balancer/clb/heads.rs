//! Classic load balancers by name, up to twenty in one call.
//!
//! One answer tells nearly everything of a load balancer, so a pass over an unchanged Service costs
//! this read only. When many Services are looked at within seconds, because Nodes came and went, the
//! first one's call brings the next ones along: those that wait for an answer, then those known to
//! exist. What was brought along serves one pass and is believed for a few seconds; a load balancer
//! whose pass is under way is not brought along, since it is about to change.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Mutex as StdMutex, PoisonError},
    time::Duration,
};

use ccm_core::cloud::CloudResult;
use tokio::{sync::Mutex, time::Instant};

use crate::api::elb::{ElbApi, LoadBalancer, NAMES_PER_CALL};

/// How long an answer that was brought along is believed: longer than the passes of a burst need to
/// follow each other.
const TTL: Duration = Duration::from_secs(10);

/// Names remembered as existing: far more than one account gets load balancers.
const MAX_SEEN: usize = 2_000;

#[derive(Debug, Default)]
struct State {
    seen: BTreeSet<String>,
    busy: BTreeSet<String>,
    answers: BTreeMap<String, (LoadBalancer, Instant)>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Heads {
    waiting: StdMutex<BTreeSet<String>>,
    state: Mutex<State>,
}

/// A name stops waiting, also when nobody awaits it any more.
struct Waiting<'a> {
    all: &'a StdMutex<BTreeSet<String>>,
    name: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(self.name);
    }
}

impl Heads {
    /// The load balancer of that name, for a pass that begins now. `likely` says that it should
    /// exist: asked for together with others, one that does not spoils the answer for all.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn get(
        &self,
        elb: &dyn ElbApi,
        name: &str,
        likely: bool,
    ) -> CloudResult<Option<LoadBalancer>> {
        if likely {
            self.waiting().insert(name.to_owned());
        }
        let waits = Waiting {
            all: &self.waiting,
            name,
        };
        let mut state = self.state.lock().await;
        drop(waits);
        state.busy.insert(name.to_owned());
        state.answers.retain(|_, (_, since)| since.elapsed() < TTL);
        if let Some((found, _)) = state.answers.remove(name) {
            return Ok(Some(found));
        }
        let mut names = BTreeSet::from([name.to_owned()]);
        if likely || state.seen.contains(name) {
            let waiting = self.waiting().clone();
            state.bring_along(&mut names, &waiting);
        }
        let answer = match elb.load_balancers(&names).await {
            Err(error) if error.is_not_found() && names.len() > 1 => {
                // Which one is missing is not said. They come back as each is asked for.
                state.seen.retain(|one| !names.contains(one));
                elb.load_balancers(&BTreeSet::from([name.to_owned()])).await
            }
            answer => answer,
        };
        let found = match answer {
            Err(error) if error.is_not_found() => {
                state.seen.remove(name);
                return Ok(None);
            }
            answer => answer?,
        };
        let now = Instant::now();
        if state.seen.len() + found.len() > MAX_SEEN {
            state.seen.clear();
        }
        for one in found {
            state.seen.insert(one.name.clone());
            state.answers.insert(one.name.clone(), (one, now));
        }
        Ok(state.answers.remove(name).map(|(found, _)| found))
    }

    /// A pass has ended: what was read of it meanwhile may be half of it. `there` says that the
    /// load balancer exists now.
    pub async fn done(&self, name: &str, there: bool) {
        let mut state = self.state.lock().await;
        state.busy.remove(name);
        state.answers.remove(name);
        if there {
            state.seen.insert(name.to_owned());
        }
    }

    /// The load balancer is being deleted.
    pub async fn forget(&self, name: &str) {
        self.done(name, false).await;
        self.state.lock().await.seen.remove(name);
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Fills a call up: those that wait first, then those that come next by name.
    fn bring_along(&self, names: &mut BTreeSet<String>, waiting: &BTreeSet<String>) {
        let Some(own) = names.first().cloned() else {
            return;
        };
        let after = (Bound::Excluded(&own), Bound::Unbounded);
        let around = self
            .seen
            .range::<String, _>(after)
            .chain(self.seen.range::<String, _>(..&own));
        let more = waiting
            .iter()
            .chain(around)
            .filter(|one| !self.busy.contains(*one) && !self.answers.contains_key(*one));
        for one in more {
            if names.len() >= NAMES_PER_CALL {
                return;
            }
            names.insert(one.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use ccm_core::cloud::{Class, CloudError};

    use super::*;
    use crate::{
        api::elb::{Attributes, HealthCheck, ListenerSpec, NewLoadBalancer, Policy},
        tags::Tags,
    };

    /// An account with these load balancers, and what it was asked for.
    #[derive(Default)]
    struct Account {
        there: StdMutex<BTreeSet<String>>,
        asked: StdMutex<Vec<Vec<String>>>,
    }

    impl Account {
        fn with(count: usize) -> Self {
            Self {
                there: StdMutex::new((0..count).map(|n| format!("lb-{n:02}")).collect()),
                asked: StdMutex::default(),
            }
        }

        fn sizes(&self) -> Vec<usize> {
            let asked = std::mem::take(&mut *self.asked.lock().unwrap());
            asked.iter().map(Vec::len).collect()
        }
    }

    macro_rules! unused {
        ($($name:ident($($arg:ty),*) -> $out:ty;)*) => {
            #[async_trait]
            impl ElbApi for Account {
                async fn load_balancers(
                    &self,
                    names: &BTreeSet<String>,
                ) -> CloudResult<Vec<LoadBalancer>> {
                    self.asked.lock().unwrap().push(names.iter().cloned().collect());
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    let there = self.there.lock().unwrap();
                    if !names.is_subset(&there) {
                        return Err(CloudError::new(Class::NotFound, "none of that name"));
                    }
                    let found = names.iter().map(|name| LoadBalancer {
                        name: name.clone(),
                        ..LoadBalancer::default()
                    });
                    Ok(found.collect())
                }
                $(async fn $name(&self, $(_: $arg),*) -> CloudResult<$out> {
                    Err(CloudError::transient("not to be called"))
                })*
            }
        };
    }

    unused! {
        all_load_balancers() -> Vec<LoadBalancer>;
        create_load_balancer(&NewLoadBalancer) -> String;
        delete_load_balancer(&str) -> ();
        attach_subnets(&str, &BTreeSet<String>) -> BTreeSet<String>;
        detach_subnets(&str, &BTreeSet<String>) -> BTreeSet<String>;
        apply_security_groups(&str, &[String]) -> ();
        create_listeners(&str, &[ListenerSpec]) -> ();
        delete_listeners(&str, &BTreeSet<i32>) -> ();
        has_policy(&str, &str) -> bool;
        create_policy(&str, &Policy) -> ();
        set_backend_policies(&str, i32, &BTreeSet<String>) -> ();
        set_listener_policies(&str, i32, &BTreeSet<String>) -> ();
        attributes(&str) -> Attributes;
        modify_attributes(&str, &Attributes) -> ();
        configure_health_check(&str, &HealthCheck) -> ();
        register(&str, &[String]) -> ();
        deregister(&str, &[String]) -> ();
        tags(&str) -> Tags;
        add_tags(&str, &Tags) -> ();
        remove_tags(&str, &BTreeSet<String>) -> ();
    }

    async fn pass(heads: &Heads, account: &Account, n: usize, likely: bool) -> bool {
        let name = format!("lb-{n:02}");
        let found = heads.get(account, &name, likely).await.unwrap();
        assert!(found.as_ref().is_none_or(|lb| lb.name == name));
        heads.done(&name, found.is_some()).await;
        found.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_are_asked_for_together() {
        let (heads, account) = (Heads::default(), Account::with(45));
        let all = (0..45).map(|n| pass(&heads, &account, n, true));
        let found = futures::future::join_all(all).await;
        assert!(found.into_iter().all(|found| found));
        let sizes = account.sizes();
        assert_eq!(sizes.iter().sum::<usize>(), 45, "each once: {sizes:?}");
        assert!(sizes.len() <= 4 && sizes.iter().all(|size| *size <= NAMES_PER_CALL));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_brought_along_serves_one_pass_and_not_for_long() {
        let (heads, account) = (Heads::default(), Account::with(5));
        for n in 0..5 {
            pass(&heads, &account, n, false).await;
        }
        assert_eq!(account.sizes(), [1; 5]);
        for n in 0..5 {
            pass(&heads, &account, n, false).await;
        }
        assert_eq!(account.sizes(), [5]);
        pass(&heads, &account, 0, false).await;
        assert_eq!(account.sizes(), [5], "its answer was used up");
        tokio::time::advance(TTL).await;
        pass(&heads, &account, 1, false).await;
        assert_eq!(account.sizes(), [5], "too old");
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_pass_is_under_way_is_not_brought_along() {
        let (heads, account) = (Heads::default(), Account::with(3));
        for n in 0..3 {
            pass(&heads, &account, n, false).await;
        }
        heads.get(&account, "lb-01", false).await.unwrap();
        account.sizes();
        // Another one reads while it changes; what was read before it began is gone as well.
        tokio::time::advance(TTL).await;
        pass(&heads, &account, 0, false).await;
        assert_eq!(*account.asked.lock().unwrap(), [["lb-00", "lb-02"]]);
        heads.done("lb-01", true).await;
        account.sizes();
        pass(&heads, &account, 1, false).await;
        assert_eq!(account.sizes().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_gone_spoils_one_answer_only() {
        let (heads, account) = (Heads::default(), Account::with(5));
        for n in 0..5 {
            pass(&heads, &account, n, false).await;
        }
        account.sizes();
        account.there.lock().unwrap().remove("lb-03");
        for n in 0..5 {
            assert_eq!(pass(&heads, &account, n, false).await, n != 3);
        }
        assert_eq!(account.sizes(), [5, 1, 1, 1, 1, 1]);
        // A new one is asked for alone, before and after it is there.
        assert!(!pass(&heads, &account, 9, false).await);
        assert_eq!(account.sizes(), [1]);
        heads.forget("lb-00").await;
        pass(&heads, &account, 1, false).await;
        let asked = account.asked.lock().unwrap();
        assert_eq!(*asked, [["lb-01", "lb-02", "lb-04"]]);
    }
}
