//! Writes to the API server stand behind the fence too: a replica that wakes up after it lost the
//! lease must not, for example, give a pod range to a Node that its successor gave to another.

use http::{Method, Request};
use kube::{Client, client::Body};
use tower::{BoxError, service_fn};

use crate::runtime::Fence;

/// A client that reads as `client` does and writes only while `fence` lets pass. What is asked by
/// POST and changes nothing, such as reviews, counts as a write: controllers do not ask that.
pub fn fenced(client: Client, fence: Fence) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let (client, fence) = (client.clone(), fence.clone());
        async move {
            check(&fence, request.method())?;
            client.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}

/// Lets reads pass always.
pub(super) fn check(fence: &Fence, method: &Method) -> Result<(), BoxError> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    Ok(fence.check()?)
}

#[cfg(test)]
mod tests {
    use ccm_kubesim::{KubeSim, Options};
    use kube::{Api, api::DeleteParams};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reads_pass_and_writes_wait_for_the_lease() {
        let sim = KubeSim::new(Options::default());
        sim.apply_direct(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" },
        }))
        .unwrap();
        let fence = Fence::waiting();
        let nodes: Api<k8s_openapi::api::core::v1::Node> =
            Api::all(fenced(Client::new(sim.service(), "default"), fence.clone()));
        assert!(nodes.get("a").await.is_ok());
        let error = nodes
            .delete("a", &DeleteParams::default())
            .await
            .unwrap_err();
        assert!(
            format!("{error:?}").contains("leader election lease"),
            "{error:?}"
        );
        assert_eq!(sim.list("nodes").len(), 1);
        let soon = tokio::time::Instant::now() + std::time::Duration::from_secs(1);
        fence.extend(soon);
        nodes.delete("a", &DeleteParams::default()).await.unwrap();
        assert_eq!(sim.list("nodes").len(), 0);
    }
}
