//! Target groups that AWS shows late, that vanish while they are read, and that are someone else's.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use ccm_cloudsim::control::Fault;
use ccm_core::cloud::{Class, CloudError, CloudResult, LoadBalancers};

use super::bench::{Bench, other_service, writes};
use crate::{
    api::elbv2::{self as e, Elbv2Api},
    load_balancer::testing::{LB, alb, service},
    tags::Tags,
};

/// An account in which target groups stay attached for a while after their load balancer is gone.
struct Lingering {
    inner: Arc<dyn Elbv2Api>,
    /// The load balancer's ARN.
    arn: String,
    lingers: AtomicBool,
}

macro_rules! passed_on {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl Elbv2Api for Lingering {
            async fn all_target_groups(&self) -> CloudResult<Vec<e::TargetGroup>> {
                let mut found = self.inner.all_target_groups().await?;
                if self.lingers.load(Ordering::SeqCst) {
                    for group in &mut found {
                        group.load_balancers.insert(self.arn.clone());
                    }
                }
                Ok(found)
            }
            async fn delete_target_group(&self, arn: &str) -> CloudResult<()> {
                if self.lingers.load(Ordering::SeqCst) {
                    return Err(CloudError::new(Class::Conflict, "in use").with_code("ResourceInUse"));
                }
                self.inner.delete_target_group(arn).await
            }
            $(async fn $name(&self, $($arg: $type),*) -> CloudResult<$out> {
                self.inner.$name($($arg),*).await
            })*
        }
    };
}

passed_on! {
    load_balancer(name: &str) -> Option<e::LoadBalancer>;
    create_load_balancer(new: &e::NewLoadBalancer) -> e::LoadBalancer;
    delete_load_balancer(arn: &str) -> ();
    set_security_groups(arn: &str, groups: &BTreeSet<String>) -> ();
    load_balancer_attributes(arn: &str) -> e::Attributes;
    modify_load_balancer_attributes(arn: &str, attributes: &e::Attributes) -> ();
    listeners(arn: &str) -> Vec<e::Listener>;
    create_listener(arn: &str, spec: &e::ListenerSpec, tags: &Tags) -> e::Listener;
    modify_listener(arn: &str, spec: &e::ListenerSpec) -> e::Listener;
    delete_listener(arn: &str) -> ();
    target_groups_of(arn: &str) -> Vec<e::TargetGroup>;
    target_group_named(name: &str) -> Option<e::TargetGroup>;
    create_target_group(new: &e::NewTargetGroup) -> e::TargetGroup;
    modify_target_group(arn: &str, change: &e::HealthChange) -> ();
    targets(arn: &str) -> BTreeSet<e::Target>;
    register(arn: &str, targets: &[e::Target]) -> ();
    deregister(arn: &str, targets: &[e::Target]) -> ();
    target_group_attributes(arn: &str) -> e::Attributes;
    modify_target_group_attributes(arn: &str, attributes: &e::Attributes) -> ();
    resource_tags(arns: &BTreeSet<String>) -> BTreeMap<String, Tags>;
    add_tags(arn: &str, tags: &Tags) -> ();
    remove_tags(arn: &str, keys: &BTreeSet<String>) -> ();
}

/// REQ-AWS-DEL-3, REQ-AWS-DEL-13
#[tokio::test(start_paused = true)]
async fn a_target_group_that_still_shows_the_deleted_load_balancer_is_left_over() {
    let mut bench = Bench::new(1).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let lingering = Arc::new(Lingering {
        inner: Arc::clone(&bench.lbs.observer.elb),
        arn: bench.state().load_balancer(LB).unwrap().arn.clone(),
        lingers: AtomicBool::new(true),
    });
    bench.lbs.observer.elb = lingering.clone();
    bench.lbs.applier.elb = lingering.clone();
    // The second try finds no load balancer any more.
    for _ in 0..2 {
        let error = bench.lbs.delete(&service).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
        assert!(bench.state().load_balancers.is_empty());
        let left = bench.lbs.get(&service).await.unwrap();
        assert!(left.is_some(), "the finalizer must stay");
    }
    lingering.lingers.store(false, Ordering::SeqCst);
    bench.delete(&service).await;
    assert!(bench.state().target_groups.is_empty());
}

/// REQ-AWS-DEL-13: without the annotation a load balancer that is not ours may have our target
/// group, which must not be waited for.
#[tokio::test(start_paused = true)]
async fn a_target_group_behind_a_foreign_load_balancer_of_our_name_is_not_waited_for() {
    let bench = Bench::new(1).await;
    let mut service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let arn = bench.state().load_balancer(LB).unwrap().arn.clone();
    let keys = BTreeSet::from(["kubernetes.io/cluster/kite".to_owned()]);
    let elb = &bench.lbs.observer.elb;
    elb.remove_tags(&arn, &keys).await.unwrap();
    service.metadata.annotations = None;
    bench.delete(&service).await;
    assert_eq!(bench.state().target_groups.len(), 1);
    assert!(bench.state().load_balancers.contains_key(&arn));
}

/// REQ-AWS-TAG-17: one resource that is gone does not hide the tags of the others.
#[tokio::test(start_paused = true)]
async fn tags_of_what_is_still_there_are_read_although_something_vanished() {
    let bench = Bench::new(1).await;
    bench.ensure(&service(&[(80, 30080)])).await;
    let state = bench.state();
    let mut arns: BTreeSet<String> = state.load_balancers.keys().cloned().collect();
    arns.extend(state.target_groups.keys().cloned());
    let there = arns.clone();
    let gone = arns.iter().map(|arn| format!("{arn}0")).collect::<Vec<_>>();
    arns.extend(gone);
    let elb = &bench.lbs.observer.elb;
    let (answer, calls) = bench.calls(elb.resource_tags(&arns)).await;
    let tags = answer.unwrap();
    assert_eq!(tags.keys().cloned().collect::<BTreeSet<_>>(), there);
    assert!(
        tags.values()
            .all(|t| t["kubernetes.io/service-name"] == "shop/web")
    );
    assert_eq!(calls.len(), 1 + arns.len());
    let fault = Fault::error(403, "AccessDenied", "no");
    bench.sim.faults().always("DescribeTags", fault).unwrap();
    let error = elb.resource_tags(&arns).await.unwrap_err();
    assert_eq!(error.class(), Class::Denied);
}

/// REQ-AWS-DEL-13
#[tokio::test(start_paused = true)]
async fn an_unattached_target_group_that_vanishes_while_it_is_read_is_left_out() {
    let mut bench = Bench::new(1).await;
    let fault = Fault::error(400, "ValidationError", "no");
    bench.sim.faults().always("RegisterTargets", fault).unwrap();
    bench
        .try_ensure(&service(&[(81, 30081)]))
        .await
        .unwrap_err();
    bench.sim.faults().clear_all();
    bench.restart().await;
    let fault = Fault::error(400, "TargetGroupNotFound", "gone");
    let faults = bench.sim.faults();
    faults.next("DescribeTargetHealth", 1, fault).unwrap();
    let (_, calls) = bench.calls(bench.ensure(&service(&[(80, 30080)]))).await;
    assert!(!writes(&calls).contains(&"DeleteTargetGroup"));
}

/// A removal that succeeded changed the list that all Services share.
#[tokio::test(start_paused = true)]
async fn a_removal_renews_the_shared_list_of_target_groups() {
    let bench = Bench::new(1).await;
    let (first, second) = (service(&[(80, 30080)]), other_service("web-2", 30082));
    bench.ensure(&first).await;
    bench.delete(&first).await;
    let (_, calls) = bench.calls(bench.ensure(&second)).await;
    // One by name, one of all, as in a new process.
    let lists = calls
        .iter()
        .filter(|call| call.action == "DescribeTargetGroups")
        .count();
    assert_eq!(lists, 2);
}

/// REQ-AWS-NLB-27
#[tokio::test(start_paused = true)]
async fn a_target_group_of_our_name_behind_another_load_balancer_is_a_conflict() {
    let mut bench = Bench::new(1).await;
    let service = service(&[(80, 30080)]);
    bench.ensure(&service).await;
    let state = bench.state();
    let own = state.load_balancer(LB).unwrap();
    let group = bench.target_group(80);
    let elb = Arc::clone(&bench.lbs.observer.elb);
    elb.delete_load_balancer(&own.arn).await.unwrap();
    let subnet_id = own.subnets[0].subnet_id.clone();
    let new = e::NewLoadBalancer {
        name: "by-hand".to_owned(),
        subnets: vec![e::SubnetMapping {
            subnet_id,
            ..e::SubnetMapping::default()
        }],
        ..e::NewLoadBalancer::default()
    };
    let foreign = elb.create_load_balancer(&new).await.unwrap();
    let spec = e::ListenerSpec {
        port: 8080,
        protocol: "TCP".to_owned(),
        target_group: group.arn.clone(),
        ..e::ListenerSpec::default()
    };
    elb.create_listener(&foreign.arn, &spec, &Tags::new())
        .await
        .unwrap();
    bench.restart().await;
    let (answer, calls) = bench.calls(bench.try_ensure(&service)).await;
    let error = answer.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    let text = error.to_string();
    assert!(
        text.contains(&group.name) && text.contains(&foreign.arn),
        "{text}"
    );
    assert_eq!(writes(&calls), [""; 0]);
    elb.delete_load_balancer(&foreign.arn).await.unwrap();
    bench.ensure(&service).await;
}

/// REQ-AWS-DEL-7 and CASE-LB-22
#[tokio::test(start_paused = true)]
async fn a_security_group_attached_by_hand_is_kept_although_it_is_tagged_as_owned() {
    let bench = Bench::with(1, |s| s.managed_security_groups = true).await;
    let owned = Tags::from([("kubernetes.io/cluster/kite".to_owned(), "owned".to_owned())]);
    let vpc = &bench.cluster.vpc_id;
    let by_hand = bench.sim.aws().create_security_group(vpc, "mine", owned);
    let by_hand = by_hand.unwrap();
    let mut service = service(&[(80, 30080)]);
    alb(&mut service, "internal", "true");
    bench.ensure(&service).await;
    let lb = bench.state().load_balancer(LB).unwrap().arn.clone();
    let mut groups = bench.attached();
    let made = groups.clone();
    groups.insert(by_hand.clone());
    let elb = &bench.lbs.observer.elb;
    elb.set_security_groups(&lb, &groups).await.unwrap();
    bench.delete(&service).await;
    let left = bench.state().security_groups;
    assert!(left.contains_key(&by_hand));
    assert!(made.iter().all(|id| !left.contains_key(id)));
}
