//! The manager's side of the emulated cloud: keeps nothing, so that what is measured is the
//! manager.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_core::{
    cloud::{
        BuildError, Class, Cloud, CloudError, CloudResult, Ensured, Factory, InstanceMetadata,
        Instances, LoadBalancers, Power, Presence, ProviderId, Read, Updated,
    },
    kube::{LoadBalancerStatus, Node, Service},
};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, NodeAddress};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The name under which `--cloud-provider` selects it.
pub const NAME: &str = "bench";

/// The provider. Its cloud-config file holds the address of the cloud.
#[must_use]
pub fn factory() -> Factory {
    Factory::new(
        NAME,
        Arc::new(|build| {
            Box::pin(async move {
                let config = build
                    .config
                    .ok_or_else(|| BuildError::Config("--cloud-config is needed".to_owned()))?;
                let client = Client {
                    address: config.text.trim().to_owned(),
                };
                Ok(Arc::new(client) as Arc<dyn Cloud>)
            })
        }),
    )
}

#[derive(Clone)]
struct Client {
    address: String,
}

impl Cloud for Client {
    fn name(&self) -> &'static str {
        NAME
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        Some(Arc::new(self.clone()))
    }

    fn load_balancers(&self) -> Option<Arc<dyn LoadBalancers>> {
        Some(Arc::new(self.clone()))
    }
}

impl Client {
    /// One call: the answer's body, `None` for 404.
    async fn call(&self, method: &str, path: &str, body: &str) -> CloudResult<Option<String>> {
        let failed = |error: std::io::Error| CloudError::transient(error.to_string());
        let mut stream = TcpStream::connect(&self.address).await.map_err(failed)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: cloud\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(failed)?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .ok_or_else(|| CloudError::transient("the connection ended early"))?;
        match head.split(' ').nth(1) {
            Some("200") => Ok(Some(body.to_owned())),
            Some("404") => Ok(None),
            other => Err(CloudError::transient(format!("status {other:?}"))),
        }
    }

    /// One answer a Node.
    async fn machines(&self, nodes: &[Arc<Node>]) -> CloudResult<Vec<Value>> {
        let names: Vec<&str> = nodes.iter().map(|node| node.name()).collect();
        let answer = self
            .call("POST", "/machines", &json!(names).to_string())
            .await?
            .unwrap_or_default();
        serde_json::from_str(&answer).map_err(|error| CloudError::transient(error.to_string()))
    }
}

#[async_trait]
impl Instances for Client {
    async fn presence(&self, nodes: &[Arc<Node>], _: Read) -> Vec<CloudResult<Presence>> {
        match self.machines(nodes).await {
            Ok(machines) => machines
                .iter()
                .map(|machine| match machine {
                    Value::Null => Ok(Presence::Absent),
                    _ => Ok(Presence::Present(Power::Running)),
                })
                .collect(),
            Err(error) => nodes.iter().map(|_| Err(copy(&error))).collect(),
        }
    }

    async fn metadata(&self, nodes: &[Arc<Node>]) -> Vec<CloudResult<Option<InstanceMetadata>>> {
        match self.machines(nodes).await {
            Ok(machines) => machines.iter().map(|m| metadata(m).map(Some)).collect(),
            Err(error) => nodes.iter().map(|_| Err(copy(&error))).collect(),
        }
    }
}

fn copy(error: &CloudError) -> CloudError {
    CloudError::transient(error.to_string())
}

fn metadata(machine: &Value) -> CloudResult<InstanceMetadata> {
    if machine.is_null() {
        return Err(CloudError::new(Class::NotFound, "no such machine"));
    }
    let text = |field: &str| {
        let value = machine.get(field).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let address = |address: &Value| NodeAddress {
        type_: address["type"].as_str().unwrap_or_default().to_owned(),
        address: address["address"].as_str().unwrap_or_default().to_owned(),
    };
    let addresses = machine.get("addresses").and_then(Value::as_array);
    Ok(InstanceMetadata {
        provider_id: ProviderId::new(text("providerID")).ok(),
        instance_type: text("type"),
        addresses: addresses.into_iter().flatten().map(address).collect(),
        zone: text("zone"),
        region: text("region"),
        ..InstanceMetadata::default()
    })
}

fn path(service: &Service) -> String {
    format!("/balancers/{}/{}", service.namespace(), service.name())
}

/// The load balancer that the Service asks for. It stands in front of the whole cluster: how many
/// Nodes there are is all that it knows of them.
fn desired(service: &Service, nodes: &[Arc<Node>]) -> String {
    let ports: Vec<_> = service
        .spec
        .ports
        .iter()
        .map(|port| json!([port.port, port.node_port, port.protocol()]))
        .collect();
    json!({ "uid": service.uid(), "ports": ports, "backends": nodes.len() }).to_string()
}

fn status(service: &Service) -> LoadBalancerStatus {
    LoadBalancerStatus {
        ingress: Some(vec![LoadBalancerIngress {
            hostname: Some(format!("{}.elb.example.com", service.uid())),
            ..LoadBalancerIngress::default()
        }]),
    }
}

#[async_trait]
impl LoadBalancers for Client {
    async fn get(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        let found = self.call("GET", &path(service), "").await?;
        Ok(found.map(|_| status(service)))
    }

    async fn ensure(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Ensured> {
        let (path, desired) = (path(service), desired(service, nodes));
        if self.call("GET", &path, "").await?.as_ref() != Some(&desired) {
            self.call("PUT", &path, &desired).await?;
        }
        Ok(Ensured::Ready {
            status: status(service),
            notes: Vec::new(),
        })
    }

    async fn update(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Updated> {
        self.ensure(service, nodes).await?;
        Ok(Updated::Done { notes: Vec::new() })
    }

    async fn delete(&self, service: &Service) -> CloudResult<()> {
        self.call("DELETE", &path(service), "").await?;
        Ok(())
    }
}
