//! Services of another class.

use ccm_core::{cloud::CloudError, kube::Service};
use http::header::ACCEPT;
use http_body_util::BodyExt;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    client::Body,
};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{
    bench::{Bench, FINALIZER, pass, service},
    cloud::Op,
};

fn foreign(finalizer: bool) -> Value {
    let mut service = service("web");
    service["spec"]["loadBalancerClass"] = json!("example.com/other");
    service["status"]["loadBalancer"]["ingress"] = json!([{"hostname": "theirs.example"}]);
    if finalizer {
        service["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    service
}

/// A Service whose load balancer is ours and that is of another class now: two quick changes of
/// the type while the controller was down.
async fn taken_over() -> Bench {
    let mut bench = Bench::ready().await;
    bench.stop().await;
    bench.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    bench.patch(
        "web",
        &json!({
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"},
            "status": {"loadBalancer": {"ingress": [{"hostname": "theirs.example"}]}},
        }),
    );
    bench.cloud.forget_calls();
    bench
}

fn status(bench: &Bench) -> Value {
    bench.service("web").unwrap()["status"]["loadBalancer"]["ingress"][0]["hostname"].clone()
}

/// CASE-LB-09, REQ-SVC-01, REQ-SVC-46, REQ-AWS-DIV-3, TS3
#[tokio::test(start_paused = true)]
async fn a_service_of_another_class_is_invisible() {
    let bench = Bench::running();
    bench.put(foreign(false));
    let mark = bench.sim.mark();
    pass(60).await;
    bench.patch(
        "web",
        &json!({"spec": {"ports": [{"name": "http", "port": 81}]}}),
    );
    bench.put_node("c");
    pass(60).await;
    bench.delete("web");
    pass(60).await;
    assert!(bench.service("web").is_none());
    assert!(bench.cloud.calls().is_empty());
    assert!(bench.events.all().is_empty());
    assert_eq!(bench.sim.count_writes_since(&mark), 0);
}

/// REQ-SVC-08, REQ-SVC-44
#[tokio::test(start_paused = true)]
async fn what_is_ours_behind_a_service_of_another_class_is_deleted() {
    let mut bench = taken_over().await;
    bench.start();
    pass(300).await;
    assert!(bench.cloud.balancers().is_empty());
    assert!(!bench.has_finalizer("web"));
    assert_eq!(status(&bench), "theirs.example", "not ours to write");
    let calls: Vec<_> = bench.cloud.calls().iter().map(|call| call.op).collect();
    assert_eq!(calls, [Op::Get, Op::Delete]);
    assert_eq!(
        bench.events.reasons()[2..],
        ["DeletingLoadBalancer", "DeletedLoadBalancer"]
    );
}

/// REQ-SVC-08: the same seen by a running controller.
#[tokio::test(start_paused = true)]
async fn a_class_that_appears_while_we_run_ends_our_load_balancer() {
    let bench = Bench::ready().await;
    bench.patch("web", &json!({"spec": {"type": "ClusterIP"}}));
    bench.patch(
        "web",
        &json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}}),
    );
    pass(60).await;
    assert!(bench.cloud.balancers().is_empty());
    assert!(!bench.has_finalizer("web"));
    assert_eq!(bench.cloud.count(Op::Ensure, "web"), 1);
}

/// REQ-SVC-08
#[tokio::test(start_paused = true)]
async fn errors_keep_the_finalizer_of_a_service_of_another_class() {
    let mut bench = taken_over().await;
    bench
        .cloud
        .fail_next(Op::Get, || CloudError::transient("x"));
    bench
        .cloud
        .fail_next(Op::Delete, || CloudError::transient("y"));
    bench.start();
    pass(3).await;
    assert_eq!(
        bench.told("SyncLoadBalancerFailed")[0].message,
        "Error syncing load balancer: failed to check if load balancer exists before cleanup: x"
    );
    pass(5).await;
    assert!(bench.has_finalizer("web"));
    assert_eq!(
        bench.told("SyncLoadBalancerFailed")[1].message,
        "Error syncing load balancer: failed to delete load balancer: y"
    );
    pass(30).await;
    assert!(!bench.has_finalizer("web"));
    assert!(bench.cloud.balancers().is_empty());
}

/// REQ-SVC-44
#[tokio::test(start_paused = true)]
async fn a_service_of_another_class_is_looked_at_once() {
    let bench = Bench::running();
    bench.put(foreign(true));
    let mark = bench.sim.mark();
    pass(300).await;
    bench.patch(
        "web",
        &json!({"spec": {"ports": [{"name": "http", "port": 81}]}}),
    );
    pass(300).await;
    assert_eq!(bench.cloud.count(Op::Get, "web"), 1);
    assert_eq!(bench.cloud.calls().len(), 1);
    assert!(bench.has_finalizer("web"));
    assert!(bench.events.all().is_empty());
    assert_eq!(bench.sim.count_writes_since(&mark), 0);
    bench.patch("web", &json!({"metadata": {"finalizers": null}}));
    bench.patch("web", &json!({"metadata": {"finalizers": [FINALIZER]}}));
    pass(5).await;
    assert_eq!(
        bench.cloud.count(Op::Get, "web"),
        2,
        "the finalizer appeared anew"
    );
}

/// A client that names the elements of `f:finalizers` in `managedFields`, as a real API server
/// does; the API server of the tests records the list alone.
fn detailed(bench: &Bench) -> Client {
    let sim = bench.sim.service();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let sim = sim.clone();
        async move {
            let accept = request.headers().get(ACCEPT).and_then(|v| v.to_str().ok());
            let metadata_only = accept.is_some_and(|v| v.contains("PartialObjectMetadata;"));
            let response = sim.oneshot(request).await?.map(axum::body::Body::new);
            if !metadata_only {
                return Ok::<_, tower::BoxError>(response);
            }
            let (parts, body) = response.into_parts();
            let text = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
            let element = json!({ (format!("v:\"{FINALIZER}\"")): {} });
            let text = text.replace(
                "\"f:finalizers\":{}",
                &format!("\"f:finalizers\":{element}"),
            );
            Ok(http::Response::from_parts(
                parts,
                axum::body::Body::from(text),
            ))
        }
    });
    Client::new(service, "default")
}

/// REQ-SVC-45
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_we_own_nothing_under_leaves_only_if_we_set_it() {
    for (manager, gone) in [
        ("cloud-controller-manager", true),
        ("aws-cloud-controller-manager", true),
        ("other-controller", false),
    ] {
        let mut bench = Bench::stopped();
        bench.put(foreign(false));
        let client = detailed(&bench);
        let api: Api<Service> = Api::namespaced(client.clone(), "shop");
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let body = json!({"metadata": {"finalizers": [FINALIZER]}});
        api.patch("web", &params, &Patch::Merge(body))
            .await
            .unwrap();
        bench.start_with(client);
        pass(60).await;
        assert!(bench.has_finalizer("web"), "not while it lives");
        bench.delete("web");
        pass(60).await;
        assert_eq!(bench.service("web").is_none(), gone, "{manager}");
        assert!(bench.events.all().is_empty());
        assert_eq!(bench.cloud.count(Op::Delete, "web"), 0);
        if !gone {
            assert_eq!(status(&bench), "theirs.example");
        }
        bench.stop().await;
    }
}
