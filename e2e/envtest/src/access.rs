//! Who may do what at the API server: the manager under its ServiceAccount, with exactly the role
//! that the product's table of permissions makes.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use ccm_core::runtime::{
    Identity, Permission, RbacOptions, check_permissions, permissions, rbac_manifest,
};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind, TypeMeta},
};
use tokio::time::Instant;

/// Namespace and name of the manager's ServiceAccount in the manifest.
pub const MANAGER_ACCOUNT: (&str, &str) = ("kube-system", "cloud-controller-manager");

/// A day: longer than any sandbox plays.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// The API server hears of a new role within milliseconds.
const GRANT_LIMIT: Duration = Duration::from_secs(30);

/// The user name of a ServiceAccount.
pub fn account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Applies manifests as `kubectl apply --server-side` does: roles become exactly what the text
/// says.
///
/// # Errors
/// The text is no list of manifests, or the API server refuses one.
pub async fn apply(client: &Client, manifests: &str) -> Result<()> {
    for document in manifests.split("\n---\n") {
        let object: DynamicObject = serde_saphyr::from_str(document)
            .with_context(|| format!("not a manifest:\n{document}"))?;
        let types = object.types.clone().unwrap_or_default();
        let name = object.name_any();
        let params = PatchParams::apply("test").force();
        of_kind(client, &types, object.namespace().as_deref())?
            .patch(&name, &params, &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply {} {name}", types.kind))?;
    }
    Ok(())
}

fn of_kind(
    client: &Client,
    types: &TypeMeta,
    namespace: Option<&str>,
) -> Result<Api<DynamicObject>> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    Ok(match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    })
}

/// A token of the ServiceAccount, which is made if it is not there.
///
/// # Errors
/// The API server refuses.
pub async fn account_token(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let account = ServiceAccount {
        metadata: kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            ..Default::default()
        },
        ..Default::default()
    };
    match accounts.create(&PostParams::default(), &account).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(error).context("create a ServiceAccount"),
    }
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: Vec::new(),
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: None,
        },
        ..Default::default()
    };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .context("ask for a token")?;
    Ok(answer.status.context("no token in the answer")?.token)
}

/// Waits until the API server allows the owner of this client all of these.
///
/// # Errors
/// It does not in time.
pub async fn wait_until_granted(client: &Client, wanted: &[Permission]) -> Result<()> {
    let start = Instant::now();
    loop {
        let missing = check_permissions(client.clone(), wanted).await;
        if missing.is_empty() {
            return Ok(());
        }
        if start.elapsed() > GRANT_LIMIT {
            bail!("not granted within {GRANT_LIMIT:?}: {missing:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Gives the manager's account exactly the role of these options and waits until the API server
/// knows: `manager` is a client with the account's token.
///
/// # Errors
/// The API server refuses, or does not grant in time what the role says.
pub async fn grant(admin: &Client, manager: &Client, options: &RbacOptions) -> Result<()> {
    apply(admin, &rbac_manifest(options)).await?;
    let mut wanted = permissions(options);
    wanted.retain(|permission| permission.identity == Identity::Manager);
    wait_until_granted(manager, &wanted).await
}
