//! Each verb through `kube::Client` on virtual time.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation ends the test"
)]

use ccm_kubesim::{Fault, KubeSim, Options, Target, User, Verb};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview},
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event as CoreEvent, Namespace, Node, Secret, Service, ServiceAccount},
    events::v1::Event,
};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::params::GetParams,
};
use serde_json::{Value, json};

fn sim() -> (KubeSim, Client) {
    let sim = KubeSim::new(Options::default());
    let client = Client::new(sim.service(), "default");
    (sim, client)
}

fn parse<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn code(error: &Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("no API error: {other}"),
    }
}

fn reason(error: &Error) -> String {
    match error {
        Error::Api(status) => status.reason.clone(),
        other => panic!("no API error: {other}"),
    }
}

fn message(error: &Error) -> String {
    match error {
        Error::Api(status) => status.message.clone(),
        other => panic!("no API error: {other}"),
    }
}

fn balancer(name: &str) -> Service {
    parse(json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80}]},
    }))
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_its_defaults_addresses_and_ports() {
    let (sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    let made = api
        .create(&PostParams::default(), &balancer("web"))
        .await
        .unwrap();
    let spec = made.spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("LoadBalancer"));
    assert_eq!(spec.session_affinity.as_deref(), Some("None"));
    assert_eq!(spec.external_traffic_policy.as_deref(), Some("Cluster"));
    assert_eq!(spec.internal_traffic_policy.as_deref(), Some("Cluster"));
    assert_eq!(spec.allocate_load_balancer_node_ports, Some(true));
    assert_eq!(spec.ip_families, Some(vec!["IPv4".to_owned()]));
    let ip = spec.cluster_ip.unwrap();
    assert!(ip.starts_with("10."), "{ip}");
    assert_eq!(spec.cluster_ips, Some(vec![ip]));
    let port = &spec.ports.unwrap()[0];
    assert_eq!(port.protocol.as_deref(), Some("TCP"));
    assert!((30_000..=32_767).contains(&port.node_port.unwrap()));
    assert!(made.metadata.generation.is_none());
    let stored = sim.get("services", "default", "web").unwrap();
    assert_eq!(stored["spec"]["ports"][0]["targetPort"], 80);
    assert_eq!(stored["status"], json!({"loadBalancer": {}}));
}

#[tokio::test(start_paused = true)]
async fn equal_seeds_give_equal_clusters() {
    let mut seen = Vec::new();
    for seed in [1, 1, 2] {
        let sim = KubeSim::new(Options {
            seed,
            ..Options::default()
        });
        let api: Api<Service> = Api::default_namespaced(Client::new(sim.service(), "default"));
        api.create(&PostParams::default(), &balancer("web"))
            .await
            .unwrap();
        seen.push(sim.list("services"));
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
}

#[tokio::test(start_paused = true)]
async fn a_local_service_has_a_health_port_until_it_is_no_longer_local() {
    let (sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &balancer("web"))
        .await
        .unwrap();
    let pp = PatchParams::default();
    let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
    let got = api.patch("web", &pp, &Patch::Merge(local)).await.unwrap();
    assert!(got.spec.unwrap().health_check_node_port.unwrap() >= 30_000);
    let cluster = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    let got = api.patch("web", &pp, &Patch::Merge(cluster)).await.unwrap();
    assert_eq!(got.spec.unwrap().health_check_node_port, None);
    assert!(sim.get("services", "default", "web").is_some());
}

#[tokio::test(start_paused = true)]
async fn leaving_the_type_clears_status_class_and_node_ports() {
    let (sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    let mut service = balancer("web");
    service.spec.as_mut().unwrap().load_balancer_class = Some("x.io/y".to_owned());
    api.create(&PostParams::default(), &service).await.unwrap();
    let pp = PatchParams::default();
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}});
    let got = api
        .patch_status("web", &pp, &Patch::Strategic(ingress))
        .await
        .unwrap();
    let ingress = got.status.unwrap().load_balancer.unwrap().ingress.unwrap();
    assert_eq!(ingress[0].ip_mode.as_deref(), Some("VIP"));
    let class = json!({"spec": {"loadBalancerClass": "x.io/z"}});
    let error = api
        .patch("web", &pp, &Patch::Merge(class))
        .await
        .unwrap_err();
    assert_eq!((code(&error), reason(&error).as_str()), (422, "Invalid"));
    assert!(
        message(&error).contains("may not change once set"),
        "{error}"
    );
    let plain = json!({"spec": {"type": "ClusterIP"}});
    api.patch("web", &pp, &Patch::Merge(plain)).await.unwrap();
    let stored = sim.get("services", "default", "web").unwrap();
    assert_eq!(stored["status"], json!({"loadBalancer": {}}));
    for field in [
        "loadBalancerClass",
        "externalTrafficPolicy",
        "allocateLoadBalancerNodePorts",
    ] {
        assert_eq!(stored["spec"][field], Value::Null, "{field}");
    }
    assert_eq!(stored["spec"]["ports"][0]["nodePort"], Value::Null);
    let again = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}});
    let error = api
        .patch_status("web", &pp, &Patch::Merge(again))
        .await
        .unwrap_err();
    assert_eq!(
        message(&error),
        "Service \"web\" is invalid: status.loadBalancer.ingress: Forbidden: may only be used when \
         `spec.type` is 'LoadBalancer'"
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_services_are_refused_with_the_field_that_is_wrong() {
    let (_sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    for (spec, field) in [
        (
            json!({"type": "LoadBalancer"}),
            "spec.ports: Required value",
        ),
        (
            json!({"ports": [{"port": 0}]}),
            "spec.ports[0].port: Invalid value: 0",
        ),
        (
            json!({"ports": [{"port": 1}, {"port": 2}]}),
            "spec.ports[0].name: Required value",
        ),
        (
            json!({"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}),
            "spec.ports[1]: Duplicate value",
        ),
        (
            json!({"ports": [{"port": 1, "protocol": "ICMP"}]}),
            "spec.ports[0].protocol: Unsupported value",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 1}]}),
            "provided port is not in the valid range",
        ),
        (
            json!({"type": "ExternalName"}),
            "spec.externalName: Required value",
        ),
        (
            json!({"ports": [{"port": 1}], "clusterIP": "10.96.0.1"}),
            "already allocated",
        ),
        (
            json!({"type": "Magic", "ports": [{"port": 1}]}),
            "spec.type: Unsupported value: \"Magic\"",
        ),
    ] {
        let service: Service = parse(json!({"metadata": {"name": "bad"}, "spec": spec}));
        let error = api
            .create(&PostParams::default(), &service)
            .await
            .unwrap_err();
        assert_eq!(code(&error), 422);
        assert!(message(&error).contains(field), "{error} lacks {field}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_ip_cannot_change_but_comes_back_when_it_is_left_out() {
    let (_sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    let made = api
        .create(&PostParams::default(), &balancer("web"))
        .await
        .unwrap();
    let put = api
        .replace("web", &PostParams::default(), &balancer("web"))
        .await
        .unwrap();
    assert_eq!(
        put.spec.as_ref().unwrap().cluster_ip,
        made.spec.as_ref().unwrap().cluster_ip
    );
    assert_eq!(put.spec.unwrap().ports, made.spec.unwrap().ports);
    assert_eq!(
        put.metadata.resource_version, made.metadata.resource_version,
        "nothing changed"
    );
    let other = json!({"spec": {"clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"]}});
    let error = api
        .patch("web", &PatchParams::default(), &Patch::Merge(other))
        .await
        .unwrap_err();
    assert!(
        message(&error).contains("may not change once set"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_write_keeps_metadata_and_resets_the_spec() {
    let (sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &balancer("web"))
        .await
        .unwrap();
    let patch = json!({
        "metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"], "labels": {"x": "y"}},
        "spec": {"type": "NodePort"},
    });
    let pp = PatchParams::apply("ccm");
    api.patch_status("web", &pp, &Patch::Strategic(patch))
        .await
        .unwrap();
    let stored = sim.get("services", "default", "web").unwrap();
    assert_eq!(stored["spec"]["type"], "LoadBalancer");
    assert_eq!(
        stored["metadata"]["labels"],
        json!({"app": "web", "x": "y"})
    );
    let manager = stored["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .last()
        .unwrap();
    assert_eq!(manager["manager"], "ccm");
    assert_eq!(manager["subresource"], "status");
    assert_eq!(manager["fieldsV1"]["f:metadata"]["f:finalizers"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_main_write_leaves_the_status_of_a_node() {
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    let node = json!({
        "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    });
    let made = api
        .create(&PostParams::default(), &parse(node))
        .await
        .unwrap();
    let taints = made.spec.unwrap().taints.unwrap();
    assert_eq!(taints[0].key, "node.kubernetes.io/not-ready");
    let pp = PatchParams::default();
    let patch =
        json!({"spec": {"providerID": "aws:///a/i-1", "taints": []}, "status": {"addresses": []}});
    api.patch("n1", &pp, &Patch::Strategic(patch))
        .await
        .unwrap();
    let stored = sim.get("nodes", "", "n1").unwrap();
    assert_eq!(stored["status"]["addresses"][0]["address"], "10.0.0.1");
    assert_eq!(stored["spec"], json!({"providerID": "aws:///a/i-1"}));
    let error = api
        .patch(
            "n1",
            &pp,
            &Patch::Merge(json!({"spec": {"providerID": "aws:///a/i-2"}})),
        )
        .await
        .unwrap_err();
    assert!(
        message(&error).contains("field cannot be modified once set"),
        "{error}"
    );
    let addresses =
        json!({"status": {"addresses": [{"type": "ExternalIP", "address": "198.51.100.1"}]}});
    let got = api
        .patch_status("n1", &pp, &Patch::Strategic(addresses))
        .await
        .unwrap();
    assert_eq!(got.status.unwrap().addresses.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pod_cidrs_are_set_once() {
    let (_sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    api.create(
        &PostParams::default(),
        &parse(json!({"metadata": {"name": "n1"}})),
    )
    .await
    .unwrap();
    let pp = PatchParams::default();
    let set = |cidr: &str| Patch::Strategic(json!({"spec": {"podCIDR": cidr, "podCIDRs": [cidr]}}));
    api.patch("n1", &pp, &set("10.1.0.0/24")).await.unwrap();
    let error = api.patch("n1", &pp, &set("10.2.0.0/24")).await.unwrap_err();
    assert!(
        message(&error).contains("may not change podCIDR"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn versions_protect_against_lost_updates() {
    let (_sim, client) = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let made = api
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "c"}, "data": {"a": "1"}})),
        )
        .await
        .unwrap();
    let mut first = made.clone();
    first
        .data
        .as_mut()
        .unwrap()
        .insert("a".to_owned(), "2".to_owned());
    let changed = api
        .replace("c", &PostParams::default(), &first)
        .await
        .unwrap();
    let error = api
        .replace("c", &PostParams::default(), &first)
        .await
        .unwrap_err();
    assert_eq!(reason(&error), "Conflict");
    assert_eq!(
        message(&error),
        "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; \
         please apply your changes to the latest version and try again"
    );
    let stale = json!({"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"b": "1"}});
    let error = api
        .patch("c", &PatchParams::default(), &Patch::Merge(stale))
        .await
        .unwrap_err();
    assert_eq!(code(&error), 409);
    let fresh = json!({"metadata": {"resourceVersion": changed.metadata.resource_version}, "data": {"b": "1"}});
    api.patch("c", &PatchParams::default(), &Patch::Merge(fresh))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_change_keeps_the_version() {
    let (sim, client) = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(
        &PostParams::default(),
        &parse(json!({"metadata": {"name": "c"}})),
    )
    .await
    .unwrap();
    let before = sim.resource_version();
    let same = json!({"metadata": {"labels": {}, "finalizers": null}});
    api.patch("c", &PatchParams::apply("other"), &Patch::Merge(same))
        .await
        .unwrap();
    assert_eq!(sim.resource_version(), before);
}

#[tokio::test(start_paused = true)]
async fn a_failed_test_of_a_json_patch_is_invalid() {
    let (_sim, client) = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(
        &PostParams::default(),
        &parse(json!({"metadata": {"name": "c"}, "data": {"a": "1"}})),
    )
    .await
    .unwrap();
    let patch: json_patch::Patch = parse(json!([{"op": "test", "path": "/data/a", "value": "2"}]));
    let error = api
        .patch("c", &PatchParams::default(), &Patch::Json::<()>(patch))
        .await
        .unwrap_err();
    assert_eq!((code(&error), reason(&error).as_str()), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn server_side_apply_is_refused_in_clear_words() {
    let (_sim, client) = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    let error = api
        .patch("c", &PatchParams::apply("me"), &Patch::Apply(body))
        .await
        .unwrap_err();
    assert_eq!(
        (code(&error), reason(&error).as_str()),
        (415, "UnsupportedMediaType")
    );
}

#[tokio::test(start_paused = true)]
async fn missing_and_existing_objects_are_told_apart() {
    let (_sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    let error = api.get("nobody").await.unwrap_err();
    assert_eq!(message(&error), "nodes \"nobody\" not found");
    assert_eq!(reason(&error), "NotFound");
    let node: Node = parse(json!({"metadata": {"name": "n"}}));
    api.create(&PostParams::default(), &node).await.unwrap();
    let error = api.create(&PostParams::default(), &node).await.unwrap_err();
    assert_eq!(
        (code(&error), reason(&error).as_str()),
        (409, "AlreadyExists")
    );
    let error = api
        .replace(
            "nobody",
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "nobody"}})),
        )
        .await;
    assert_eq!(code(&error.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn names_are_generated_and_dry_runs_leave_nothing() {
    let (sim, client) = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let generated: ConfigMap = parse(json!({"metadata": {"generateName": "job-"}}));
    let a = api
        .create(&PostParams::default(), &generated)
        .await
        .unwrap()
        .metadata
        .name
        .unwrap();
    let b = api
        .create(&PostParams::default(), &generated)
        .await
        .unwrap()
        .metadata
        .name
        .unwrap();
    assert!(a.starts_with("job-") && a.len() == 9 && a != b, "{a} {b}");
    let dry = PostParams {
        dry_run: true,
        field_manager: None,
    };
    api.create(&dry, &parse(json!({"metadata": {"name": "dry"}})))
        .await
        .unwrap();
    assert_eq!(sim.get("configmaps", "default", "dry"), None);
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let (sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    let mut service = balancer("web");
    service.metadata.finalizers = Some(vec!["a.io/x".to_owned(), "a.io/y".to_owned()]);
    api.create(&PostParams::default(), &service).await.unwrap();
    let deleted = api
        .delete("web", &DeleteParams::background())
        .await
        .unwrap();
    let marked = deleted.left().unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(0));
    let version = sim.resource_version();
    api.delete("web", &DeleteParams::default()).await.unwrap();
    assert_eq!(
        sim.resource_version(),
        version,
        "a second deletion changes nothing"
    );
    let pp = PatchParams::default();
    let more = json!({"metadata": {"finalizers": ["a.io/x", "a.io/y", "a.io/z"]}});
    let error = api
        .patch("web", &pp, &Patch::Merge(more))
        .await
        .unwrap_err();
    assert!(
        message(&error).contains("no new finalizers can be added"),
        "{error}"
    );
    let label = json!({"metadata": {"labels": {"still": "editable"}, "deletionTimestamp": null}});
    let got = api.patch("web", &pp, &Patch::Merge(label)).await.unwrap();
    assert!(got.metadata.deletion_timestamp.is_some());
    let one = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/x"]}});
    api.patch_status("web", &pp, &Patch::Strategic(one))
        .await
        .unwrap();
    assert!(sim.get("services", "default", "web").is_some());
    let last = json!({"metadata": {"finalizers": null}});
    api.patch_status("web", &pp, &Patch::Merge(last))
        .await
        .unwrap();
    assert_eq!(sim.get("services", "default", "web"), None);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_with_the_uid_of_another_object_is_a_conflict() {
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    let made = api
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "n"}})),
        )
        .await
        .unwrap();
    let with = |uid: Option<String>, version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: version,
        }),
        ..DeleteParams::default()
    };
    for wrong in [
        with(Some("other".to_owned()), None),
        with(None, Some("1".to_owned())),
    ] {
        let error = api.delete("n", &wrong).await.unwrap_err();
        assert_eq!((code(&error), reason(&error).as_str()), (409, "Conflict"));
    }
    assert!(sim.get("nodes", "", "n").is_some());
    let status = api
        .delete("n", &with(made.metadata.uid, None))
        .await
        .unwrap()
        .right()
        .unwrap();
    assert!(status.is_success());
    assert_eq!(sim.get("nodes", "", "n"), None);
}

#[tokio::test(start_paused = true)]
async fn collections_are_deleted_by_selector() {
    let (sim, client) = sim();
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let map = json!({"metadata": {"name": name, "labels": {"app": app}}});
        api.create(&PostParams::default(), &parse(map))
            .await
            .unwrap();
    }
    let gone = api
        .delete_collection(
            &DeleteParams::default(),
            &ListParams::default().labels("app=x"),
        )
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(gone.items.len(), 2);
    assert_eq!(sim.list("configmaps").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_version_until_it_is_compacted() {
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    for name in ["a", "b", "c"] {
        api.create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": name}})),
        )
        .await
        .unwrap();
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.items.len(), 2);
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    let token = first.metadata.continue_.unwrap();
    sim.delete_direct("nodes", "", "c").unwrap();
    let second = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await
        .unwrap();
    assert_eq!(
        second.items[0].metadata.name.as_deref(),
        Some("c"),
        "the snapshot of the first page"
    );
    assert_eq!(
        second.metadata.resource_version,
        first.metadata.resource_version
    );
    sim.faults().compact();
    let error = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await
        .unwrap_err();
    assert_eq!((code(&error), reason(&error).as_str()), (410, "Expired"));
    let Error::Api(status) = error else {
        panic!("an API error")
    };
    let token = status.metadata.unwrap().continue_.unwrap();
    let rest = api
        .list(&ListParams::default().limit(2).continue_token(&token))
        .await
        .unwrap();
    assert!(rest.items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn lists_follow_their_version_parameters() {
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    api.create(
        &PostParams::default(),
        &parse(json!({"metadata": {"name": "a"}})),
    )
    .await
    .unwrap();
    let then = sim.resource_version().to_string();
    api.create(
        &PostParams::default(),
        &parse(json!({"metadata": {"name": "b"}})),
    )
    .await
    .unwrap();
    let exact = ListParams::default()
        .at(&then)
        .matching(kube::api::VersionMatch::Exact);
    assert_eq!(api.list(&exact).await.unwrap().items.len(), 1);
    let newer = ListParams::default()
        .at(&then)
        .matching(kube::api::VersionMatch::NotOlderThan);
    assert_eq!(api.list(&newer).await.unwrap().items.len(), 2);
    let future = ListParams::default()
        .at("100000")
        .matching(kube::api::VersionMatch::NotOlderThan);
    assert_eq!(code(&api.list(&future).await.unwrap_err()), 504);
    let got = api.get_with("a", &GetParams::any()).await.unwrap();
    assert_eq!(got.metadata.name.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn services_are_selected_by_type_and_by_namespace() {
    let (_sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &balancer("web"))
        .await
        .unwrap();
    let all: Api<Service> = Api::all(client.clone());
    let lb = ListParams::default().fields("spec.type=LoadBalancer");
    assert_eq!(all.list(&lb).await.unwrap().items.len(), 1);
    assert_eq!(
        all.list(&ListParams::default()).await.unwrap().items.len(),
        2
    );
    let system: Api<Service> = Api::namespaced(client, "kube-system");
    assert!(
        system
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let error = all
        .list(&ListParams::default().fields("spec.ports=80"))
        .await
        .unwrap_err();
    assert_eq!(code(&error), 400);
    let metadata = all.list_metadata(&lb).await.unwrap();
    assert_eq!(metadata.items[0].metadata.name.as_deref(), Some("web"));
}

#[tokio::test(start_paused = true)]
async fn both_kinds_of_events_are_one_set_of_objects() {
    let (_sim, client) = sim();
    let newer: Api<Event> = Api::default_namespaced(client.clone());
    let event = json!({
        "metadata": {"name": "e"}, "regarding": {"kind": "Node", "name": "n"}, "note": "hello",
        "reason": "Because", "type": "Normal", "action": "Act", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "ccm", "reportingInstance": "ccm-1",
    });
    newer
        .create(&PostParams::default(), &parse(event))
        .await
        .unwrap();
    let core: Api<CoreEvent> = Api::default_namespaced(client);
    let by_name = ListParams::default().fields("involvedObject.name=n,reason=Because");
    let found = core.list(&by_name).await.unwrap().items;
    assert_eq!(found[0].message.as_deref(), Some("hello"));
    let patch = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let got = newer
        .patch("e", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    assert_eq!(got.series.unwrap().count, 2);
    assert_eq!(got.note.as_deref(), Some("hello"));
    let wrong = json!({"metadata": {"name": "f"}, "involvedObject": {"namespace": "other"}});
    let error = core
        .create(&PostParams::default(), &parse(wrong))
        .await
        .unwrap_err();
    assert!(
        message(&error).contains("does not match event.namespace"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_needs_its_version_and_a_put_creates_one() {
    let (_sim, client) = sim();
    let api: Api<Lease> = Api::namespaced(client, "kube-system");
    let lease: Lease = parse(
        json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}),
    );
    let mut made = api
        .replace("l", &PostParams::default(), &lease)
        .await
        .unwrap();
    let error = api
        .replace("l", &PostParams::default(), &lease)
        .await
        .unwrap_err();
    assert_eq!(code(&error), 422);
    made.spec.as_mut().unwrap().holder_identity = Some("b".to_owned());
    api.replace("l", &PostParams::default(), &made)
        .await
        .unwrap();
    assert_eq!(
        code(
            &api.replace("l", &PostParams::default(), &made)
                .await
                .unwrap_err()
        ),
        409
    );
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_their_content_with_them() {
    let (sim, client) = sim();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "shop"}})),
        )
        .await
        .unwrap();
    let services: Api<Service> = Api::namespaced(client.clone(), "shop");
    let mut held = balancer("held");
    held.metadata.finalizers = Some(vec!["a.io/x".to_owned()]);
    services
        .create(&PostParams::default(), &held)
        .await
        .unwrap();
    services
        .create(&PostParams::default(), &balancer("free"))
        .await
        .unwrap();
    namespaces
        .delete("shop", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(sim.get("services", "shop", "free"), None);
    let error = services
        .create(&PostParams::default(), &balancer("late"))
        .await
        .unwrap_err();
    assert_eq!(code(&error), 403);
    assert_eq!(
        sim.get("namespaces", "", "shop").unwrap()["status"]["phase"],
        "Terminating"
    );
    let last = json!({"metadata": {"finalizers": null}});
    services
        .patch("held", &PatchParams::default(), &Patch::Merge(last))
        .await
        .unwrap();
    assert_eq!(sim.get("namespaces", "", "shop"), None);
    let nowhere: Api<Service> = Api::namespaced(client, "nowhere");
    let error = nowhere
        .create(&PostParams::default(), &balancer("x"))
        .await
        .unwrap_err();
    assert_eq!(message(&error), "namespaces \"nowhere\" not found");
    assert_eq!(
        code(
            &namespaces
                .delete("default", &DeleteParams::default())
                .await
                .unwrap_err()
        ),
        403
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_open_the_door() {
    let tokens = [("secret".to_owned(), User::named("ccm"))].into();
    let sim = KubeSim::new(Options {
        tokens,
        ..Options::default()
    });
    let strangers: Api<Node> = Api::all(Client::new(sim.service(), "default"));
    assert_eq!(
        code(&strangers.list(&ListParams::default()).await.unwrap_err()),
        401
    );
    let client = with_token(&sim, "secret");
    let reviews: Api<TokenReview> = Api::all(client.clone());
    let ask = |token: &str| parse::<TokenReview>(json!({"spec": {"token": token}}));
    let yes = reviews
        .create(&PostParams::default(), &ask("secret"))
        .await
        .unwrap();
    assert_eq!(
        yes.status.unwrap().user.unwrap().username.as_deref(),
        Some("ccm")
    );
    let no = reviews
        .create(&PostParams::default(), &ask("wrong"))
        .await
        .unwrap();
    assert_eq!(no.status.unwrap().authenticated, Some(false));
    let access: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(ResourceAttributes::default()),
        non_resource_attributes: None,
    };
    let review = SelfSubjectAccessReview {
        spec,
        ..Default::default()
    };
    assert!(
        access
            .create(&PostParams::default(), &review)
            .await
            .unwrap()
            .status
            .unwrap()
            .allowed
    );
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client);
    accounts
        .create(
            &PostParams::default(),
            &parse(json!({"metadata": {"name": "sa"}})),
        )
        .await
        .unwrap();
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec!["x".to_owned()],
            ..Default::default()
        },
        ..Default::default()
    };
    let token = accounts
        .create_token_request("sa", &PostParams::default(), &request)
        .await
        .unwrap();
    let api: Api<Node> = Api::all(with_token(&sim, &token.status.unwrap().token));
    assert!(api.list(&ListParams::default()).await.is_ok());
}

fn with_token(sim: &KubeSim, token: &str) -> Client {
    let header = format!("Bearer {token}");
    let service = tower::ServiceBuilder::new()
        .map_request(move |mut request: http::Request<kube::client::Body>| {
            request
                .headers_mut()
                .insert("authorization", header.parse().unwrap());
            request
        })
        .service(sim.service());
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn secrets_keep_plain_text_encoded() {
    let (sim, client) = sim();
    let api: Api<Secret> = Api::default_namespaced(client);
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "foo"}});
    api.create(&PostParams::default(), &parse(secret))
        .await
        .unwrap();
    let stored = sim.get("secrets", "default", "s").unwrap();
    assert_eq!(stored["data"]["a"], "Zm9v");
    assert_eq!(stored["type"], "Opaque");
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted_by_verb_resource_and_subresource() {
    let (sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &balancer("web"))
        .await
        .unwrap();
    let mark = sim.mark();
    api.get("web").await.unwrap();
    api.list(&ListParams::default()).await.unwrap();
    let patch = json!({"status": {"loadBalancer": {"ingress": [{"hostname": "a.b"}]}}});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let since = sim.since(&mark);
    assert_eq!(since.count(Verb::Get, "services"), 1);
    assert_eq!(since.count(Verb::List, "services"), 1);
    assert_eq!(since.sum(|k| k.subresource == "status"), 1);
    assert_eq!(sim.count_writes_since(&mark), 1);
    assert_eq!(since.entries.last().unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn faults_strike_what_they_aim_at_and_no_more() {
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    let node: Node = parse(json!({"metadata": {"name": "n"}}));
    api.create(&PostParams::default(), &node).await.unwrap();
    let get = || Target::new(Verb::Get, "nodes").named("n");
    for (fault, want) in [
        (Fault::Conflict, 409),
        (Fault::Gone, 410),
        (Fault::Forbidden, 403),
        (Fault::TooManyRequests(3), 429),
        (Fault::Internal, 500),
        (Fault::Unavailable(None), 503),
    ] {
        sim.faults().fail_next(1, get(), fault);
        assert!(
            api.list(&ListParams::default()).await.is_ok(),
            "another verb"
        );
        assert_eq!(code(&api.get("n").await.unwrap_err()), want);
        assert!(api.get("n").await.is_ok(), "used up");
    }
    sim.faults().fail_next(
        1,
        Target::new(Verb::Delete, "nodes"),
        Fault::TimeoutWithEffect,
    );
    assert_eq!(
        code(&api.delete("n", &DeleteParams::default()).await.unwrap_err()),
        504
    );
    assert_eq!(sim.get("nodes", "", "n"), None, "the change was made");
    sim.faults()
        .fail_next(1, Target::new(Verb::Create, "nodes"), Fault::Drop);
    assert!(matches!(
        api.create(&PostParams::default(), &node).await,
        Err(Error::Service(_))
    ));
    assert_eq!(sim.get("nodes", "", "n"), None);
    sim.faults()
        .fail_next(1, Target::new(Verb::Create, "nodes"), Fault::DropWithEffect);
    assert!(matches!(
        api.create(&PostParams::default(), &node).await,
        Err(Error::Service(_))
    ));
    assert!(sim.get("nodes", "", "n").is_some());
    assert_eq!(sim.faults().pending(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_outage_lasts_until_its_end_on_virtual_time() {
    use tokio::time::{Duration, Instant, sleep};
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    let minute = Duration::from_secs(60);
    sim.faults()
        .unavailable_until(Instant::now() + minute, ccm_kubesim::Outage::Refused);
    assert!(matches!(
        api.list(&ListParams::default()).await,
        Err(Error::Service(_))
    ));
    sleep(minute).await;
    assert!(api.list(&ListParams::default()).await.is_ok());
    sim.faults().unavailable(ccm_kubesim::Outage::Status503);
    assert_eq!(
        code(&api.list(&ListParams::default()).await.unwrap_err()),
        503
    );
    sim.faults().available();
    assert!(api.list(&ListParams::default()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_waits_on_virtual_time() {
    let (sim, client) = sim();
    let api: Api<Node> = Api::all(client);
    let delay = tokio::time::Duration::from_secs(20);
    sim.faults()
        .fail_next(1, Target::any(), Fault::Delay(delay));
    let start = tokio::time::Instant::now();
    api.list(&ListParams::default()).await.unwrap();
    assert_eq!(start.elapsed(), delay);
}

#[tokio::test(start_paused = true)]
async fn an_administrator_arranges_objects_with_their_status() {
    let (sim, client) = sim();
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    let mark = sim.mark();
    sim.apply_direct(node.clone()).unwrap();
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    sim.patch_merge("nodes", "", "n", &patch).unwrap();
    let got = Api::<Node>::all(client).get("n").await.unwrap();
    assert_eq!(got.status.unwrap().conditions.unwrap()[0].status, "False");
    sim.apply_direct(node).unwrap();
    assert_eq!(
        sim.get("nodes", "", "n").unwrap()["status"]["conditions"][0]["status"],
        "True"
    );
    assert_eq!(
        sim.count_writes_since(&mark),
        0,
        "the log shows clients only"
    );
    assert_eq!(
        sim.apply_direct(json!({"kind": "Nothing"}))
            .unwrap_err()
            .code,
        400
    );
    sim.delete_direct("nodes", "", "n").unwrap();
    assert_eq!(sim.delete_direct("nodes", "", "n").unwrap_err().code, 404);
}

#[tokio::test(start_paused = true)]
async fn clients_discover_what_is_served() {
    let (_sim, client) = sim();
    assert_eq!(client.apiserver_version().await.unwrap().minor, "33");
    let groups = client.list_api_groups().await.unwrap();
    assert!(
        groups
            .groups
            .iter()
            .any(|g| g.name == "coordination.k8s.io")
    );
    let core = client.list_core_api_resources("v1").await.unwrap();
    assert!(core.resources.iter().any(|r| r.name == "services/status"));
    let discovery = kube::discovery::Discovery::new(client.clone())
        .run_aggregated()
        .await
        .unwrap();
    let leases = discovery
        .groups()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
        .find(|(r, _)| r.kind == "Lease");
    assert_eq!(leases.unwrap().0.plural, "leases");
    let plain = kube::discovery::Discovery::new(client).run().await.unwrap();
    assert!(plain.has_group("events.k8s.io"));
}

#[tokio::test(start_paused = true)]
async fn events_live_for_an_hour_after_their_last_write() {
    let (sim, client) = sim();
    let api: Api<CoreEvent> = Api::default_namespaced(client);
    let event = |name: &str| -> CoreEvent {
        parse(json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}}))
    };
    api.create(&PostParams::default(), &event("old"))
        .await
        .unwrap();
    api.create(&PostParams::default(), &event("kept"))
        .await
        .unwrap();
    tokio::time::sleep(tokio::time::Duration::from_secs(3000)).await;
    let again = json!({"count": 2});
    api.patch("kept", &PatchParams::default(), &Patch::Merge(again))
        .await
        .unwrap();
    tokio::time::sleep(tokio::time::Duration::from_secs(1000)).await;
    api.create(&PostParams::default(), &event("new"))
        .await
        .unwrap();
    let names: Vec<Value> = sim
        .list("events")
        .iter()
        .map(|e| e["metadata"]["name"].clone())
        .collect();
    assert_eq!(names, ["kept", "new"]);
}

#[tokio::test(start_paused = true)]
async fn a_headless_service_without_a_selector_has_both_families() {
    let (sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    let headless = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None"}});
    api.create(&PostParams::default(), &parse(headless))
        .await
        .unwrap();
    let stored = sim.get("services", "default", "h").unwrap();
    assert_eq!(stored["spec"]["ipFamilyPolicy"], "RequireDualStack");
    assert_eq!(stored["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(stored["spec"]["clusterIPs"], json!(["None"]));
}

#[tokio::test(start_paused = true)]
async fn a_status_write_that_also_changes_the_type_gets_the_defaults_of_that_type() {
    let (sim, client) = sim();
    let api: Api<Service> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &balancer("web"))
        .await
        .unwrap();
    let patch = json!({"spec": {"type": "NodePort"}, "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}});
    let error = api
        .patch_status("web", &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .unwrap_err();
    assert!(
        message(&error).contains("ipMode: Required value"),
        "{error}"
    );
    assert_eq!(
        sim.get("services", "default", "web").unwrap()["status"],
        json!({"loadBalancer": {}})
    );
}
