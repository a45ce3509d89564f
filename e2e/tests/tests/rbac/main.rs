//! The manager under a ServiceAccount with exactly the role that the table of permissions makes, on
//! the real API server with RBAC on: nothing is denied, everything that is granted is used, and what
//! is missing is named.

mod day;
mod missing;
mod routes;

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use ccm_core::{
    config::ControllerName,
    runtime::{Identity, Permission, RbacOptions, permissions},
};
use ccm_e2e_tests::{Bench, Request};
use ccm_envtest::{MANAGER_ACCOUNT, account_user};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview},
    coordination::v1::Lease,
    core::v1::ServiceAccount,
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

/// The namespace of the Lease and of all accounts.
const KUBE_SYSTEM: &str = MANAGER_ACCOUNT.0;

/// The accounts of the controllers that AWS has.
const ACCOUNTS: [&str; 2] = ["node-controller", "service-controller"];
/// Those and the one of the route controller.
const ALL_ACCOUNTS: [&str; 3] = ["node-controller", "service-controller", "route-controller"];

/// What of the process runs on AWS with `--allocate-node-cidrs`.
fn on_aws(service_account_credentials: bool) -> RbacOptions {
    let controllers = ControllerName::ALL.into_iter();
    RbacOptions {
        controllers: controllers
            .filter(|name| *name != ControllerName::Route)
            .collect(),
        service_account_credentials,
        ..RbacOptions::default()
    }
}

/// A cluster in which the manager has exactly the role of these options, and its controllers'
/// accounts have nothing from elsewhere.
async fn bench_with(options: &RbacOptions, machines: usize) -> Result<Bench> {
    let bench = Bench::new(machines).await?;
    // kube-controller-manager's controllers have accounts of the same names, with roles that an API
    // server makes at its start.
    let bindings: Api<ClusterRoleBinding> = Api::all(bench.client.clone());
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.client.clone(), KUBE_SYSTEM);
    for account in ALL_ACCOUNTS {
        let name = format!("system:controller:{account}");
        gone(bindings.delete(&name, &DeleteParams::default()).await)?;
        gone(accounts.delete(account, &DeleteParams::default()).await)?;
    }
    let leases: Api<Lease> = Api::namespaced(bench.client.clone(), KUBE_SYSTEM);
    gone(
        leases
            .delete(MANAGER_ACCOUNT.1, &DeleteParams::default())
            .await,
    )?;
    bench.api.grant_manager(options).await?;
    Ok(bench)
}

fn gone<T>(outcome: kube::Result<T>) -> Result<()> {
    match outcome {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whose request it is.
fn identity(request: &Request) -> Result<Identity> {
    let account = |name| account_user(KUBE_SYSTEM, name);
    if request.user == account(MANAGER_ACCOUNT.1) {
        return Ok(Identity::Manager);
    }
    let mut accounts = ALL_ACCOUNTS.into_iter();
    let name = accounts.find(|name| request.user == account(name));
    let name = name.with_context(|| format!("{} asked", request.user))?;
    Ok(Identity::Account(name))
}

fn allows(permission: &Permission, request: &Request) -> Result<bool> {
    let of = (request.namespace.as_str(), request.name.as_str());
    Ok(permission.identity == identity(request)?
        && permission.allows(&request.verb, &request.group, &request.resource, of))
}

/// What every authenticated user may do: ask for the version, and what oneself may do.
fn is_free(request: &Request) -> bool {
    request.resource.is_empty() || request.resource == "selfsubjectaccessreviews"
}

/// Compares what was asked with what the table grants, both ways.
fn compare(requests: &[Request], options: &RbacOptions) -> Result<()> {
    let table = permissions(options);
    let denied: Vec<_> = requests
        .iter()
        .filter(|r| r.code == 403 || r.code == 401)
        .collect();
    anyhow::ensure!(denied.is_empty(), "denied: {denied:#?}");
    for request in requests.iter().filter(|request| !is_free(request)) {
        let mut covered = false;
        for permission in &table {
            covered |= allows(permission, request)?;
        }
        anyhow::ensure!(covered, "not in the table: {request:?}");
    }
    let mut unused = BTreeSet::new();
    for permission in &table {
        for verb in &permission.verbs {
            let alone = Permission {
                verbs: vec![verb],
                ..permission.clone()
            };
            let mut used = false;
            for request in requests {
                used |= !is_free(request) && allows(&alone, request)?;
            }
            if !used {
                unused.insert(format!(
                    "{:?} {verb} {}: {}",
                    alone.identity, alone.resource, alone.why
                ));
            }
        }
    }
    anyhow::ensure!(unused.is_empty(), "granted and not used: {unused:#?}");
    Ok(())
}

/// Whether the API server lets the manager's own account do this.
async fn may(bench: &Bench, verb: &str, resource: &str) -> Result<bool> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: Some(subresource.to_owned()),
        ..Default::default()
    };
    let review: SubjectAccessReview = serde_json::from_value(json!({
        "spec": {
            "user": account_user(KUBE_SYSTEM, MANAGER_ACCOUNT.1),
            "groups": ["system:authenticated", "system:serviceaccounts"],
            "resourceAttributes": attributes,
        },
    }))?;
    let reviews: Api<SubjectAccessReview> = Api::all(bench.client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.context("no answer")?.allowed)
}
