//! A plan over the simulated cloud: it says exactly what the next pass then does.

use ccm_cloudsim::control::Call;
use ccm_core::{
    cloud::{Ensured, KNOWN_AFTER_APPLY, LoadBalancers, RecordedWrite, Recorder, Writes},
    kube::{LoadBalancerStatus, Service},
};

use crate::{
    load_balancer::testing::{LB, alb, classic, service},
    sim_world::SimWorld,
};

fn world(managed: bool) -> SimWorld {
    SimWorld::new(2, |settings| settings.managed_security_groups = managed)
}

async fn ensure(world: &SimWorld, service: &Service, writes: &Writes) -> LoadBalancerStatus {
    let view = Box::pin(world.view(writes)).await;
    let nodes = world.nodes();
    match view.load_balancers.ensure(service, &nodes).await.unwrap() {
        Ensured::Ready { status, notes } => {
            assert_eq!(notes, []);
            status
        }
        other @ Ensured::ImplementedElsewhere { .. } => panic!("{other:?}"),
    }
}

fn host(status: &LoadBalancerStatus) -> &str {
    status.ingress.as_ref().unwrap()[0]
        .hostname
        .as_deref()
        .unwrap()
}

/// What a pass would do, and its status. Nothing is changed by that.
async fn planned(world: &SimWorld, service: &Service) -> (LoadBalancerStatus, Vec<RecordedWrite>) {
    let recorder = Recorder::default();
    let writes = Writes::Recorded(recorder.clone());
    let before = world.state();
    let work = Box::pin(recorder.scope(ensure(world, service, &writes)));
    let (planned, calls) = world.calls(work).await;
    assert!(!calls.iter().any(Call::is_write), "{calls:?}");
    assert_eq!(world.state(), before);
    planned
}

fn sorted<'a>(actions: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut actions: Vec<&str> = actions.collect();
    actions.sort_unstable();
    actions
}

fn actions(writes: &[RecordedWrite]) -> Vec<&str> {
    sorted(writes.iter().map(|write| write.action))
}

/// What is planned is what the next pass does: neither more nor less. Answers with the plan.
async fn planned_then_done(world: &SimWorld, service: &Service) -> Vec<RecordedWrite> {
    let (_, writes) = planned(world, service).await;
    let (_, calls) = world.calls(ensure(world, service, &Writes::Real)).await;
    let done = calls.iter().filter(|call| call.is_write());
    assert_eq!(
        actions(&writes),
        sorted(done.map(|call| call.action.as_str()))
    );
    writes
}

#[tokio::test(start_paused = true)]
async fn a_new_load_balancer_is_planned_to_its_last_call() {
    for managed in [false, true] {
        let world = world(managed);
        let mut service = service(&[(80, 30080), (81, 30081)]);
        alb(&mut service, "additional-resource-tags", "team=blue");
        alb(&mut service, "cross-zone-load-balancing-enabled", "true");
        let (status, _) = planned(&world, &service).await;
        assert_eq!(host(&status), KNOWN_AFTER_APPLY);
        let writes = planned_then_done(&world, &service).await;
        assert_eq!(
            actions(&writes).contains(&"CreateSecurityGroup"),
            managed,
            "{writes:#?}"
        );
        let create = writes
            .iter()
            .find(|w| w.action == "CreateLoadBalancer")
            .unwrap();
        assert_eq!(create.object, format!("load balancer {LB}"));
        for line in ["scheme: internet-facing", "tag team: blue"] {
            assert!(create.details.iter().any(|l| l == line), "{create:?}");
        }
        let listener = writes
            .iter()
            .find(|w| w.action == "CreateListener")
            .unwrap();
        assert_eq!(
            listener.object,
            format!("listener TCP 80 of load balancer {LB}")
        );
        assert!(listener.details[0].starts_with("forwards to: target group k8s-shop-web-"));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_planned_where_all_is_done() {
    for managed in [false, true] {
        let world = world(managed);
        let service = service(&[(80, 30080)]);
        let made = ensure(&world, &service, &Writes::Real).await;
        let (status, writes) = planned(&world, &service).await;
        assert_eq!(writes, []);
        assert_eq!(status, made);
    }
}

#[tokio::test(start_paused = true)]
async fn a_drift_and_a_change_are_planned_as_differences() {
    let world = world(true);
    let mut service = service(&[(80, 30080), (81, 30081)]);
    ensure(&world, &service, &Writes::Real).await;
    // Somebody takes a target away, another port is asked for, and a check is made faster.
    let view = world.view(&Writes::Real).await;
    let lb = view.elb.load_balancer(LB).await.unwrap().unwrap();
    let groups = view.elb.target_groups_of(&lb.arn).await.unwrap();
    let group = groups.iter().find(|group| group.port == 30080).unwrap();
    let target = view
        .elb
        .targets(&group.arn)
        .await
        .unwrap()
        .pop_first()
        .unwrap();
    let target = [target];
    view.elb.deregister(&group.arn, &target).await.unwrap();
    service.spec.ports[1].port = 8081;
    alb(&mut service, "healthcheck-unhealthy-threshold", "5");
    alb(&mut service, "healthcheck-healthy-threshold", "5");
    let writes = planned_then_done(&world, &service).await;
    let of = |action: &str| writes.iter().find(|w| w.action == action).unwrap();
    assert_eq!(
        of("RegisterTargets").details,
        [format!("1 target: {}", target[0].id)]
    );
    let health = of("ModifyTargetGroup");
    assert!(
        health.details.iter().any(|line| line.ends_with(" -> 5")),
        "{health:?}"
    );
    assert!(of("DeleteListener").object.contains("TCP 81"));
    assert!(of("CreateListener").object.contains("TCP 8081"));
    assert_eq!(planned(&world, &service).await.1, []);
}

#[tokio::test(start_paused = true)]
async fn a_removal_is_planned_in_full_and_touches_nothing() {
    let world = world(true);
    let service = service(&[(80, 30080)]);
    ensure(&world, &service, &Writes::Real).await;
    let recorder = Recorder::default();
    let view = world.view(&Writes::Recorded(recorder.clone())).await;
    let before = world.state();
    let work = recorder.scope(async {
        let found = view.load_balancers.get(&service).await.unwrap();
        view.load_balancers.delete(&service).await.unwrap();
        found
    });
    let ((found, writes), calls) = world.calls(work).await;
    assert!(found.is_some());
    assert!(!calls.iter().any(Call::is_write), "{calls:?}");
    assert_eq!(world.state(), before);
    let view = world.view(&Writes::Real).await;
    let (answer, calls) = world.calls(view.load_balancers.delete(&service)).await;
    answer.unwrap();
    let done = calls.iter().filter(|call| call.is_write());
    assert_eq!(
        actions(&writes),
        sorted(done.map(|call| call.action.as_str()))
    );
    assert_eq!(writes[0].action, "DeleteLoadBalancer");
}

/// The rule that lets "fragmentation needed" in is shared: it is planned once, though the groups
/// are read again in between.
#[tokio::test(start_paused = true)]
async fn what_services_share_is_planned_once() {
    let world = world(false);
    let recorder = Recorder::default();
    let view = world.view(&Writes::Recorded(recorder.clone())).await;
    let mut mtu = 0;
    for (name, port) in [("one", 30080), ("two", 30081)] {
        let mut service = service(&[(80, port)]);
        service.metadata.name = Some(name.to_owned());
        service.metadata.uid = Some(format!("{port}-0000"));
        let nodes = world.nodes();
        let work = view.load_balancers.ensure(&service, &nodes);
        let (answer, writes) = recorder.scope(work).await;
        answer.unwrap();
        let lines = writes.iter().flat_map(|write| &write.details);
        mtu += lines.filter(|line| line.contains("icmp")).count();
        tokio::time::advance(std::time::Duration::from_secs(120)).await;
    }
    assert_eq!(mtu, 1);
    assert_eq!(recorder.take_unattributed(), []);
}

#[tokio::test(start_paused = true)]
async fn a_classic_load_balancer_is_planned_from_nothing_to_its_removal() {
    let world = world(false);
    let mut service = classic(&[(80, 30080), (81, 30081)]);
    alb(&mut service, "additional-resource-tags", "team=blue");
    alb(&mut service, "proxy-protocol", "*");
    alb(&mut service, "connection-idle-timeout", "90");
    let (status, _) = planned(&world, &service).await;
    assert_eq!(host(&status), KNOWN_AFTER_APPLY);
    let writes = planned_then_done(&world, &service).await;
    let of = |writes: &[RecordedWrite], action: &str| {
        let found = writes.iter().find(|write| write.action == action);
        found.cloned().unwrap_or_else(|| panic!("{writes:#?}"))
    };
    let create = of(&writes, "CreateLoadBalancer");
    assert_eq!(create.object, format!("load balancer {LB}"));
    for line in ["scheme: internet-facing", "tag team: blue"] {
        assert!(create.details.iter().any(|l| l == line), "{create:?}");
    }
    assert_eq!(planned(&world, &service).await.1, []);

    // Somebody takes a machine away; another port and time are asked for.
    let id = world.cluster.instance_ids[0].clone();
    let view = world.view(&Writes::Real).await;
    view.classic
        .deregister(LB, std::slice::from_ref(&id))
        .await
        .unwrap();
    service.spec.ports[1].port = 8081;
    alb(&mut service, "connection-idle-timeout", "120");
    let writes = planned_then_done(&world, &service).await;
    assert_eq!(
        of(&writes, "RegisterInstancesWithLoadBalancer").details,
        [format!("1 instance: {id}")]
    );
    assert_eq!(
        of(&writes, "ModifyLoadBalancerAttributes").details,
        ["attribute idle timeout: 90 -> 120"]
    );
    let listener = |action| of(&writes, action).details.join("\n").to_lowercase();
    assert!(listener("DeleteLoadBalancerListeners").contains("tcp 81 to tcp 30081"));
    assert!(listener("CreateLoadBalancerListeners").contains("tcp 8081 to tcp 30081"));

    let recorder = Recorder::default();
    let view = world.view(&Writes::Recorded(recorder.clone())).await;
    let removal = recorder.scope(view.load_balancers.delete(&service));
    let ((removed, writes), calls) = world.calls(removal).await;
    removed.unwrap();
    assert!(!calls.iter().any(Call::is_write), "{calls:?}");
    let view = world.view(&Writes::Real).await;
    let (answer, calls) = world.calls(view.load_balancers.delete(&service)).await;
    answer.unwrap();
    let done = calls.iter().filter(|call| call.is_write());
    assert_eq!(
        actions(&writes),
        sorted(done.map(|call| call.action.as_str()))
    );
}
