//! The table against what the code does, the manifest against the table, and the check.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ccm_kubesim::{Entry, Fault, KubeSim, Options, Target, Verb};
use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    config::ControllerName,
    kube::{
        ApiEventSink, EventRecorder, Informer, LoadBalancerStatus, Node, NodePatch, NodeWrites,
        Service, ServiceWrites,
    },
    runtime::{Clock, Random},
};

/// The request as RBAC sees it.
fn allowed(permissions: &[Permission], entry: &Entry) -> bool {
    let verb = match entry.key.verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Watch => "watch",
        Verb::Create => "create",
        Verb::Update => "update",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
        Verb::DeleteCollection => "deletecollection",
    };
    let (plural, group) = entry
        .key
        .resource
        .split_once('.')
        .unwrap_or((&entry.key.resource, ""));
    let resource = match entry.key.subresource.as_str() {
        "" => plural.to_owned(),
        subresource => format!("{plural}/{subresource}"),
    };
    let of = (entry.namespace.as_str(), entry.name.as_str());
    permissions
        .iter()
        .any(|permission| permission.allows(verb, group, &resource, of))
}

async fn once(client: Client, sim: &KubeSim) {
    let stop = CancellationToken::new();
    let (nodes, services) = (Informer::<Node>::new(), Informer::<Service>::new());
    let (node_store, service_store) = (nodes.store(), services.store());
    let random = Random::seeded(1);
    let watches = (client.clone(), random.clone(), stop.clone());
    tokio::spawn(async move {
        let (client, random, stop) = watches;
        tokio::join!(
            nodes.run(client.clone(), random.clone(), stop.clone()),
            services.run(client, random, stop),
        );
    });
    node_store.wait_until_synced().await;
    service_store.wait_until_synced().await;
    let node = node_store.named("n").unwrap();
    let service = service_store
        .list()
        .into_iter()
        .find(|s| s.name() == "s")
        .unwrap();

    let registry = prometheus::Registry::new();
    let clock = Clock::anchored(sim.now());
    let (sink, worker) = ApiEventSink::new(client.clone(), clock, random, &registry).unwrap();
    tokio::spawn(worker.run(stop.clone()));
    let recorder = EventRecorder::new("test", sink);
    recorder.normal(&*node, "Same", "same");
    recorder.normal(&*node, "Same", "same");

    let writes = NodeWrites::new(client.clone());
    writes.read("n").await.unwrap();
    let labels = [("a".to_owned(), "b".to_owned())].into();
    writes
        .patch("n", &NodePatch::labels(&node, labels))
        .await
        .unwrap();
    writes.set_addresses(&node, &[]).await.unwrap();
    writes.delete(&node).await.unwrap();

    let writes = ServiceWrites::new(client);
    let finalizer = "service.kubernetes.io/load-balancer-cleanup";
    writes.add_finalizer(&service, finalizer).await.unwrap();
    let status = LoadBalancerStatus::default();
    writes.set_load_balancer(&service, &status).await.unwrap();
    writes
        .finalizer_managers(&service, finalizer)
        .await
        .unwrap();
    writes.remove_finalizer(&service, finalizer).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop.cancel();
}

/// Everything that the code does is in the table, and what is in the table is done: no more is
/// asked for than is used.
#[tokio::test(start_paused = true)]
async fn the_table_has_what_the_code_does_and_nothing_else() {
    let sim = KubeSim::new(Options::default());
    for object in [
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        }),
    ] {
        sim.apply_direct(object).unwrap();
    }
    once(Client::new(sim.service(), "default"), &sim).await;
    let options = RbacOptions {
        controllers: [
            ControllerName::Node,
            ControllerName::NodeLifecycle,
            ControllerName::Service,
        ]
        .into(),
        own: Vec::new(),
        leases: Vec::new(),
        service_account_credentials: false,
        reviews: false,
    };
    let permissions = permissions(&options);
    let requests = sim.requests();
    for entry in &requests.entries {
        assert!(allowed(&permissions, entry), "{entry:?}");
    }
    for permission in &permissions {
        for verb in &permission.verbs {
            let only = Permission {
                verbs: vec![verb],
                ..permission.clone()
            };
            let used = requests.entries.iter();
            let used = used.filter(|entry| allowed(std::slice::from_ref(&only), entry));
            assert!(used.count() > 0, "{only:?} is never used");
        }
    }
}

/// What RBAC would make of a manifest: subject, namespace of the binding, rules.
fn granted(manifest: &str) -> Vec<(Subject, Option<String>, Vec<PolicyRule>)> {
    let objects: Vec<Value> = manifest
        .split("---\n")
        .map(|text| serde_saphyr::from_str(text).unwrap())
        .collect();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let mut granted = Vec::new();
    for binding in &objects {
        let kind = binding["kind"].as_str().unwrap();
        let Some(role_kind) = kind.strip_suffix("Binding") else {
            continue;
        };
        assert_eq!(binding["roleRef"]["kind"], role_kind);
        let role = objects.iter().find(|role| {
            role["kind"] == role_kind
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && role["metadata"]["namespace"] == binding["metadata"]["namespace"]
        });
        let rules = role.expect("the role of the binding")["rules"].clone();
        for subject in binding["subjects"].as_array().unwrap() {
            granted.push((
                serde_json::from_value(subject.clone()).unwrap(),
                text(&binding["metadata"]["namespace"]),
                serde_json::from_value(rules.clone()).unwrap(),
            ));
        }
    }
    granted
}

/// Every single (account, namespace, group, resource, name, verb).
type Atom = (String, Option<String>, String, String, String, String);

fn atoms_of_manifest(manifest: &str) -> Vec<Atom> {
    let mut atoms = Vec::new();
    for (subject, namespace, rules) in granted(manifest) {
        assert_eq!(subject.kind, "ServiceAccount");
        assert_eq!(subject.namespace.as_deref(), Some("kube-system"));
        for rule in rules {
            let names = rule.resource_names.unwrap_or_else(|| vec![String::new()]);
            for name in names {
                for verb in &rule.verbs {
                    atoms.push((
                        subject.name.clone(),
                        namespace.clone(),
                        rule.api_groups.as_ref().unwrap()[0].clone(),
                        rule.resources.as_ref().unwrap()[0].clone(),
                        name.clone(),
                        verb.clone(),
                    ));
                }
            }
        }
    }
    atoms.sort();
    atoms
}

fn atoms_of_table(options: &RbacOptions) -> Vec<Atom> {
    let mut atoms = Vec::new();
    for permission in permissions(options) {
        let account = match permission.identity {
            Identity::Manager => "cloud-controller-manager",
            Identity::Account(account) => account,
        };
        let mut names = permission.names.clone();
        if names.is_empty() {
            names.push(String::new());
        }
        for name in names {
            for verb in &permission.verbs {
                atoms.push((
                    account.to_owned(),
                    permission.namespace.clone(),
                    permission.group.to_owned(),
                    permission.resource.to_owned(),
                    name.clone(),
                    (*verb).to_owned(),
                ));
            }
        }
    }
    atoms.sort();
    atoms.dedup();
    atoms
}

#[test]
fn a_manifest_grants_the_rows_of_the_table_and_nothing_else() {
    let all = RbacOptions::default();
    for options in [
        all.clone(),
        RbacOptions {
            service_account_credentials: true,
            leases: vec![
                LeaseName::new("kube-system", "cloud-controller-manager"),
                LeaseName::new("kube-system", "migration"),
                LeaseName::new("true", "1"),
            ],
            ..all.clone()
        },
        RbacOptions {
            controllers: [ControllerName::Service].into(),
            leases: Vec::new(),
            reviews: false,
            ..all
        },
    ] {
        let manifest = rbac_manifest(&options);
        assert_eq!(
            atoms_of_manifest(&manifest),
            atoms_of_table(&options),
            "{manifest}"
        );
    }
}

#[test]
fn what_does_not_run_needs_nothing() {
    let quiet = RbacOptions {
        controllers: [ControllerName::Service].into(),
        own: Vec::new(),
        leases: Vec::new(),
        service_account_credentials: false,
        reviews: false,
    };
    let resources: Vec<_> = permissions(&quiet)
        .iter()
        .map(|permission| (permission.resource, permission.verbs.clone()))
        .collect();
    assert_eq!(
        resources,
        [
            ("nodes", vec!["list", "watch"]),
            ("events", vec!["create", "patch"]),
            ("services", vec!["list", "watch"]),
            ("services", vec!["get"]),
            ("services/status", vec!["patch"]),
        ]
    );
}

#[test]
fn a_lease_is_named_and_accounts_get_only_their_own_rows() {
    let options = RbacOptions {
        service_account_credentials: true,
        ..RbacOptions::default()
    };
    let permissions = permissions(&options);
    let may = |identity, verb, group, resource, of| {
        permissions
            .iter()
            .filter(|permission| permission.identity == identity)
            .any(|permission| permission.allows(verb, group, resource, of))
    };
    let lease = |name| {
        let group = "coordination.k8s.io";
        may(
            Identity::Manager,
            "update",
            group,
            "leases",
            ("kube-system", name),
        )
    };
    assert!(lease("cloud-controller-manager") && !lease("kube-scheduler"));
    let token = |name| {
        let of = ("kube-system", name);
        may(Identity::Manager, "create", "", "serviceaccounts/token", of)
    };
    assert!(token("node-controller") && token("route-controller") && !token("default"));
    let nodes = Identity::Account("node-controller");
    let routes = Identity::Account("route-controller");
    assert!(may(nodes, "delete", "", "nodes", ("", "n")));
    assert!(!may(routes, "delete", "", "nodes", ("", "n")));
    assert!(!may(Identity::Manager, "delete", "", "nodes", ("", "n")));
}

/// Denies by verb and resource; counts questions, and the most at a time.
fn reviewer(
    deny: impl Fn(&Value) -> bool + Clone + Send + Sync + 'static,
    asked: &Arc<Mutex<Vec<Value>>>,
    most: &Arc<AtomicUsize>,
) -> Client {
    let (asked, most) = (Arc::clone(asked), Arc::clone(most));
    let now = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (deny, asked) = (deny.clone(), Arc::clone(&asked));
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            let attributes = review["spec"]["resourceAttributes"].clone();
            review["status"] = json!({"allowed": !deny(&attributes)});
            asked.lock().unwrap().push(attributes);
            let body = Body::from(serde_json::to_vec(&review).unwrap());
            Ok::<_, tower::BoxError>(http::Response::new(body))
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn each_missing_permission_is_named_and_counted() {
    let (asked, most) = (Arc::default(), Arc::default());
    let deny = |of: &Value| {
        of["verb"] == "delete"
            || of["subresource"] == "status" && of["resource"] == "services"
            || of["name"] == "cloud-controller-manager" && of["verb"] == "update"
    };
    let client = reviewer(deny, &asked, &most);
    let registry = prometheus::Registry::new();
    let check = PermissionCheck::new(&registry).unwrap();
    let all = permissions(&RbacOptions::default());
    let missing = check.run(client, "the manager", &all).await;
    let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
    assert_eq!(
        missing,
        [
            "delete nodes",
            "patch services/status",
            "update leases.coordination.k8s.io kube-system/cloud-controller-manager",
        ]
    );
    assert_eq!(most.load(Ordering::SeqCst), 4);
    let family = registry.gather().remove(0);
    assert_eq!(family.name(), "ccm_missing_permissions");
    assert_eq!(family.get_metric().len(), 3);
    let asked = asked.lock().unwrap();
    let configmap = asked.iter().find(|of| of["resource"] == "configmaps");
    assert_eq!(
        configmap.unwrap(),
        &json!({
            "verb": "get", "resource": "configmaps", "namespace": "kube-system",
            "name": "extension-apiserver-authentication",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_the_check_delays_nothing_for_long() {
    let sim = KubeSim::new(Options::default());
    let all = permissions(&RbacOptions::default());
    let client = Client::new(sim.service(), "default");
    let reviews = Target::new(Verb::Create, "selfsubjectaccessreviews");
    sim.faults().fail_next(3, reviews.clone(), Fault::Forbidden);
    assert!(check_permissions(client.clone(), &all).await.is_empty());
    let hour = Duration::from_secs(3600);
    sim.faults().fail_next(1000, reviews, Fault::Delay(hour));
    let start = tokio::time::Instant::now();
    assert!(check_permissions(client, &all).await.is_empty());
    assert_eq!(start.elapsed(), Duration::from_secs(30));
}

#[test]
fn the_page_has_a_row_for_each_rule() {
    let page = rbac_reference(&[]);
    let rows = page.lines().filter(|line| line.starts_with("| ")).count();
    assert_eq!(rows, 1 + table::RULES.len());
    assert!(page.contains(
        "| leader election | the manager | `coordination.k8s.io` | `leases` | get, update | \
         `--leader-elect-resource-namespace`, the Leases in use | to take, renew and release the \
         Lease |\n"
    ));
}
