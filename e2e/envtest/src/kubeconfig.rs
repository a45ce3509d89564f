//! A kubeconfig for one user.

use serde_json::json;

/// A kubeconfig (JSON is YAML) for the API server at `url`. `ca` is a file, `token` a bearer token.
pub fn kubeconfig(
    url: &str,
    ca: Option<&std::path::Path>,
    user: &str,
    token: Option<&str>,
) -> String {
    let mut cluster = json!({ "server": url });
    if let (Some(ca), Some(cluster)) = (ca, cluster.as_object_mut()) {
        cluster.insert("certificate-authority".to_owned(), json!(ca));
    }
    let credentials = token.map_or_else(|| json!({}), |token| json!({ "token": token }));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "test", "cluster": cluster }],
        "users": [{ "name": user, "user": credentials }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": user } }],
        "current-context": "test",
    });
    format!("{config:#}\n")
}
