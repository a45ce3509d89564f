//! Services that were ours and that the annotation gave to another controller.

use std::time::Duration;

use ccm_cloudsim::control::Fault;
use ccm_core::{
    cloud::{Class, Ensured, LoadBalancers, Note, Updated},
    kube::{LoadBalancerStatus, Service},
};

use super::bench::{Bench, host, other_service, writes};
use crate::load_balancer::testing::{LB, alb, service, with_status};

/// A load balancer, and its Service after the annotation changed.
async fn released(delete: bool) -> (Bench, Service) {
    let bench = Bench::with(2, |settings| {
        settings.managed_security_groups = true;
        settings.delete_released = delete;
    })
    .await;
    let mut service = service(&[(80, 30080), (81, 30081)]);
    let status = bench.ensure(&service).await;
    let host = host(&status).unwrap();
    assert!(host.starts_with(&format!("{LB}-")), "{host}");
    with_status(&mut service, &[host]);
    alb(&mut service, "type", "external");
    (bench, service)
}

async fn notes(bench: &Bench, service: &Service) -> Vec<Note> {
    match bench.lbs.ensure(service, &bench.nodes()).await.unwrap() {
        Ensured::ImplementedElsewhere { notes } => notes,
        other @ Ensured::Ready { .. } => panic!("{other:?}"),
    }
}

/// REQ-AWS-DIV-4
#[tokio::test(start_paused = true)]
async fn by_default_a_released_load_balancer_stays_and_the_user_is_told() {
    let (mut bench, mut service) = released(false).await;
    let before = bench.state();
    for restart in [false, true] {
        if restart {
            bench.restart().await;
            alb(&mut service, "type", "nlb-ip");
        }
        let work = async {
            let told = notes(&bench, &service).await;
            let updated = bench.lbs.update(&service, &bench.nodes()).await.unwrap();
            assert_eq!(
                updated,
                Updated::ImplementedElsewhere {
                    notes: told.clone()
                }
            );
            assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
            bench.lbs.delete(&service).await.unwrap();
            told
        };
        let (told, calls) = bench.calls(work).await;
        assert!(calls.is_empty());
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].reason, "LoadBalancerReleased");
        for part in [LB, "aws-load-balancer-type", "DeleteReleasedLoadBalancers"] {
            assert!(told[0].message.contains(part), "{}", told[0].message);
        }
        assert_eq!(bench.state(), before);
    }
    // The other controller's status.
    with_status(
        &mut service,
        &["k8s-shop-web-0123456789-x.elb.us-west-2.amazonaws.com"],
    );
    assert_eq!(notes(&bench, &service).await, vec![]);
}

/// REQ-AWS-DIV-4
#[tokio::test(start_paused = true)]
async fn on_demand_a_released_load_balancer_goes_with_all_its_parts() {
    for restart in [false, true] {
        let (mut bench, mut service) = released(true).await;
        let neighbour = other_service("web-2", 30082);
        bench.ensure(&neighbour).await;
        if restart {
            bench.restart().await;
        }
        assert_eq!(notes(&bench, &service).await, vec![]);
        let state = bench.state();
        assert!(state.load_balancer(LB).is_none());
        assert_eq!(
            (state.load_balancers.len(), state.target_groups.len()),
            (1, 1)
        );
        let left = bench.node_rules();
        assert!(!left.keys().any(|rule| rule.contains("30080")), "{left:?}");
        assert!(left.keys().any(|rule| rule.contains("30082")), "{left:?}");
        assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
        bench.delete(&neighbour).await;
        assert!(
            !bench
                .state()
                .security_groups
                .values()
                .any(|group| group.name.starts_with("k8s-"))
        );
        // The other controller's status: nothing hints at us.
        with_status(
            &mut service,
            &["k8s-shop-web-x.elb.us-west-2.amazonaws.com"],
        );
        let work = async {
            assert_eq!(notes(&bench, &service).await, vec![]);
            assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
            bench.lbs.delete(&service).await.unwrap();
        };
        let ((), calls) = bench.calls(work).await;
        assert!(calls.is_empty());
    }
}

/// REQ-AWS-DIV-4
#[tokio::test(start_paused = true)]
async fn a_removal_goes_on_although_the_status_is_cleared_meanwhile() {
    for restart in [false, true] {
        let (mut bench, mut service) = released(true).await;
        bench
            .sim
            .aws()
            .configure(|s| s.eni_release_delay = Duration::from_secs(30));
        service.metadata.deletion_timestamp =
            Some(serde_json::from_value("2026-01-01T00:00:00Z".into()).unwrap());
        assert!(bench.lbs.get(&service).await.unwrap().is_some());
        let error = bench.lbs.delete(&service).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
        assert!(bench.state().load_balancers.is_empty());
        service.status.load_balancer = LoadBalancerStatus::default();
        if restart {
            bench.restart().await;
        }
        assert!(
            bench.lbs.get(&service).await.unwrap().is_some(),
            "the finalizer must stay while the security group is there"
        );
        tokio::time::advance(Duration::from_secs(60)).await;
        bench.delete(&service).await;
        assert!(
            !bench
                .state()
                .security_groups
                .values()
                .any(|group| group.name.starts_with("k8s-"))
        );
    }
}

/// REQ-AWS-DIV-4
#[tokio::test(start_paused = true)]
async fn a_load_balancer_whose_tags_do_not_name_us_is_not_touched() {
    for key in ["kubernetes.io/cluster/kite", "kubernetes.io/service-name"] {
        let (bench, service) = released(true).await;
        let arn = bench.state().load_balancer(LB).unwrap().arn.clone();
        let elb = &bench.lbs.observer.elb;
        elb.remove_tags(&arn, &[key.to_owned()].into())
            .await
            .unwrap();
        let before = bench.state();
        let work = async {
            assert_eq!(notes(&bench, &service).await, vec![]);
            assert_eq!(bench.lbs.get(&service).await.unwrap(), None);
            bench.lbs.delete(&service).await.unwrap();
        };
        let ((), calls) = bench.calls(work).await;
        assert_eq!(writes(&calls), [""; 0]);
        assert_eq!(bench.state(), before);
    }
}

/// REQ-AWS-DIV-4
#[tokio::test(start_paused = true)]
async fn without_permission_to_read_tags_nothing_is_removed_and_the_permission_is_named() {
    let (bench, service) = released(true).await;
    let denied = Fault::error(403, "AccessDenied", "no");
    bench.sim.faults().always("DescribeTags", denied).unwrap();
    let before = bench.state();
    let (answer, calls) = bench
        .calls(bench.lbs.ensure(&service, &bench.nodes()))
        .await;
    let error = answer.unwrap_err();
    assert_eq!(error.class(), Class::Denied);
    let text = error.to_string();
    assert!(text.contains("elasticloadbalancing:DescribeTags"), "{text}");
    assert_eq!(writes(&calls), [""; 0]);
    assert_eq!(bench.state(), before);
}
