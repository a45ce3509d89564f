//! Plans of a cluster in the process.

use std::sync::{Arc, atomic::Ordering};

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use super::*;
use crate::session::testing::{Fake, apply, cluster, inputs, node, service};

fn lines(writes: &[crate::cloud::RecordedWrite]) -> Vec<String> {
    writes
        .iter()
        .map(|write| {
            format!(
                "{} {}: {}",
                write.action,
                write.object,
                write.details.join("; ")
            )
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_as_it_should_be_needs_no_change() {
    let (sim, fake) = (cluster(), Arc::new(Fake::default()));
    fake.standing
        .lock()
        .unwrap()
        .insert("web".to_owned(), "a.example".to_owned());
    apply(&sim, service("web", Some("a.example")));
    apply(&sim, service("elsewhere", Some("b.example")));
    apply(&sim, node("fine", "True"));
    let report = plan(inputs(&sim, &fake, &[])).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Nothing, "{report}");
    assert_eq!(
        report.looked_at,
        Counts {
            services: 2,
            nodes: 1
        }
    );
    let text = report.to_string();
    assert!(text.contains("another controller serves it"), "{text}");
    assert!(text.ends_with("Nothing to change. 2 Services and 1 Node were looked at.\n"));
}

#[tokio::test(start_paused = true)]
async fn what_the_controllers_would_do_is_told_and_nothing_is_done() {
    let (sim, fake) = (cluster(), Arc::new(Fake::default()));
    for name in ["leaving", "web"] {
        let host = (name == "leaving").then_some("a.example");
        if let Some(host) = host {
            fake.standing
                .lock()
                .unwrap()
                .insert(name.to_owned(), host.to_owned());
        }
        apply(&sim, service(name, host));
    }
    sim.delete_direct("services", "shop", "leaving").unwrap();
    let mut new = node("new", "True");
    new["spec"] = json!({ "taints": [{
        "key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule",
    }] });
    new["status"]["addresses"] = json!([]);
    apply(&sim, new);
    apply(&sim, node("gone", "Unknown"));
    let (before, mark) = (sim.list("services"), sim.mark());
    let report = plan(inputs(&sim, &fake, &["--concurrent-service-syncs=3"]))
        .await
        .unwrap();
    assert_eq!(sim.count_writes_since(&mark), 0);
    assert_eq!(sim.list("services"), before);
    assert_eq!(fake.open_fences.load(Ordering::SeqCst), 0);

    assert_eq!(report.verdict(), Verdict::Something);
    let names: Vec<&str> = report
        .services
        .iter()
        .map(|plan| plan.name.as_str())
        .collect();
    assert_eq!(names, ["shop/leaving", "shop/web"]);
    let (leaving, web) = (&report.services[0], &report.services[1]);
    assert_eq!(lines(&leaving.cloud), ["Delete load balancer of leaving: "]);
    assert_eq!(
        lines(&leaving.api),
        [
            "patch services/status Service shop/leaving: status.loadBalancer.ingress: a.example -> none",
            "patch services/status Service shop/leaving: finalizers: remove service.kubernetes.io/load-balancer-cleanup",
        ]
    );
    assert_eq!(
        lines(&web.cloud),
        [
            "Create load balancer of web: ",
            "Register load balancer of web: 1 Nodes: "
        ]
    );
    assert_eq!(
        lines(&web.api),
        [
            "patch services/status Service shop/web: finalizers: add service.kubernetes.io/load-balancer-cleanup",
            "patch services/status Service shop/web: status.loadBalancer.ingress: none -> (known after apply)",
        ]
    );
    assert_eq!(
        lines(&report.nodes["gone"].api),
        ["delete nodes Node gone: "]
    );
    assert_eq!(report.nodes["new"].api.len(), 2, "{report}");
    assert_eq!((report.cloud_changes(), report.api_changes()), (3, 7));
}

#[tokio::test(start_paused = true)]
async fn a_bad_service_is_told_and_does_not_hide_the_others() {
    let (sim, fake) = (cluster(), Arc::new(Fake::default()));
    for name in ["bad", "web"] {
        apply(&sim, service(name, None));
    }
    let report = plan(inputs(&sim, &fake, &[])).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Something);
    let problem = report.services[0].problem.as_ref().unwrap();
    assert!(problem.message.contains("annotation x"), "{problem:?}");
    assert_eq!(report.services[1].cloud.len(), 2);
    apply(&sim, service("dark", None));
    let report = plan(inputs(&sim, &fake, &[])).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Incomplete);
    assert!(report.to_string().contains("The plan is not complete"));
}

#[tokio::test(start_paused = true)]
async fn controllers_that_would_not_run_are_not_planned() {
    let (sim, fake) = (cluster(), Arc::new(Fake::default()));
    apply(&sim, service("web", None));
    apply(&sim, node("gone", "Unknown"));
    let flags = ["--controllers=*,-service-lb-controller,-cloud-node-lifecycle-controller"];
    let report = plan(inputs(&sim, &fake, &flags)).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Nothing, "{report}");
    let flags = ["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16"];
    let report = plan(inputs(&sim, &fake, &flags)).await.unwrap();
    assert_eq!(report.not_planned.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_record_is_not_asked_at_all() {
    let sim = cluster();
    let fake = Arc::new(Fake {
        careless: true,
        ..Fake::default()
    });
    apply(&sim, service("web", None));
    let error = plan(inputs(&sim, &fake, &[])).await.unwrap_err();
    assert!(
        error.to_string().contains("\"fake\" has no plan"),
        "{error}"
    );
    assert_eq!(fake.open_fences.load(Ordering::SeqCst), 0);
}

/// Whoever builds a plan on the session's client cannot write by mistake.
#[tokio::test(start_paused = true)]
async fn no_write_leaves_a_session() {
    let (sim, fake) = (cluster(), Arc::new(Fake::default()));
    apply(&sim, node("fine", "True"));
    let session = Session::open(
        inputs(&sim, &fake, &[]),
        Writes::default(),
        Fence::waiting(),
    );
    let session = session.await.unwrap();
    let mark = sim.mark();
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(session.api.clone());
    assert!(nodes.get("fine").await.is_ok());
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    let params = PatchParams::default();
    assert!(nodes.patch("fine", &params, &patch).await.is_err());
    assert!(
        nodes
            .delete("fine", &DeleteParams::default())
            .await
            .is_err()
    );
    assert_eq!(sim.count_writes_since(&mark), 0);
    assert!(sim.get("nodes", "", "fine").is_some());
}

/// More objects than a page holds are all listed, and a list that expired begins anew.
#[tokio::test(start_paused = true)]
async fn lists_are_complete_beyond_one_page() {
    let (sim, fake) = (cluster(), Arc::new(Fake::default()));
    for n in 0..1_100 {
        apply(&sim, node(&format!("n{n}"), "True"));
    }
    let report = plan(inputs(&sim, &fake, &[])).await.unwrap();
    assert_eq!(report.looked_at.nodes, 1_100);
    assert_eq!(report.verdict(), Verdict::Nothing);
}
