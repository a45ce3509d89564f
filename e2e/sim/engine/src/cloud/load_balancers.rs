//! Load balancers: observe, plan, apply.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_core::{
    cloud::{Class, CloudError, CloudResult, Ensured, LoadBalancers, Updated},
    kube::{LoadBalancerStatus, Node, Service},
};
use futures::{StreamExt as _, stream};

use super::{
    Session,
    craft::{Action, Parts, Want, specs, status},
    model::{Part, PartKind, Spec},
    provider::Provider,
};

/// Batches before it is given up: four are the most a correct plan has.
const MAX_ROUNDS: usize = 8;

/// Changes of one batch under way at once.
const AT_ONCE: usize = 4;

impl Session {
    /// Reads one part.
    ///
    /// # Errors
    /// `NotFound`, or what strikes the call.
    pub async fn get_part(&self, kind: PartKind, name: &str) -> CloudResult<Part> {
        let missing = || {
            let text = format!("{} {name} does not exist", kind.as_str());
            CloudError::new(Class::NotFound, text)
        };
        self.read(format!("get-{} {name}", kind.as_str()), |model| {
            model.part(kind, name).cloned().ok_or_else(missing)
        })
        .await
    }

    /// Reads all parts of a name.
    ///
    /// # Errors
    /// One of the reads failed.
    pub async fn observe(&self, name: &str) -> CloudResult<Parts> {
        let mut parts = Parts::new();
        // The head first: what is made while we read is made before the head.
        for kind in PartKind::ALL.into_iter().rev() {
            let found = match self.get_part(kind, name).await {
                Ok(part) => Some(part),
                Err(error) => self.craft().read_failed(error)?,
            };
            parts.extend(found.map(|part| (kind, part)));
        }
        Ok(parts)
    }

    /// Makes one change; answers the part as it is then.
    ///
    /// # Errors
    /// What the cloud or the fence says, or what strikes the call.
    pub async fn apply(&self, action: Action) -> CloudResult<Option<Part>> {
        match action {
            Action::Create(name, owner, spec) => {
                let what = format!("create-{} {name} {}", spec.kind().as_str(), shown(&spec));
                let made = self.write(what, move |model| model.create(&name, &owner, spec));
                made.await.map(Some)
            }
            Action::Change(name, spec) => {
                let what = format!("change-{} {name} {}", spec.kind().as_str(), shown(&spec));
                let made = self.write(what, move |model| model.change(&name, spec));
                made.await.map(Some)
            }
            Action::Delete(kind, name) => {
                let what = format!("delete-{} {name}", kind.as_str());
                let gone = self.write(what, move |model| model.delete(kind, &name));
                gone.await?;
                Ok(None)
            }
        }
    }

    /// Plans and applies until nothing is planned any more.
    async fn converge(
        &self,
        mut have: Parts,
        plan: impl Fn(&Parts) -> Vec<Action>,
    ) -> CloudResult<Parts> {
        for _ in 0..MAX_ROUNDS {
            let batch = plan(&have);
            if batch.is_empty() {
                return Ok(have);
            }
            let answers: Vec<_> = stream::iter(batch.clone())
                .map(|action| self.apply(action))
                .buffered(AT_ONCE)
                .collect()
                .await;
            let mut failed = None;
            for (action, answer) in batch.iter().zip(answers) {
                let made = match answer {
                    Ok(made) => made,
                    Err(error) => match self.craft().change_failed(action, error) {
                        Ok(()) => None,
                        Err(error) => {
                            failed = failed.or(Some(error));
                            continue;
                        }
                    },
                };
                absorb(&mut have, action, made);
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Err(CloudError::transient("the plan did not come to an end"))
    }
}

fn absorb(have: &mut Parts, action: &Action, made: Option<Part>) {
    match action {
        Action::Create(_, _, spec) | Action::Change(_, spec) => {
            have.extend(made.map(|part| (spec.kind(), part)));
        }
        Action::Delete(kind, _) => {
            have.remove(kind);
        }
    }
}

fn shown(spec: &Spec) -> String {
    match spec {
        Spec::Address { dual: false } => String::new(),
        Spec::Address { dual: true } => "dual".to_owned(),
        Spec::Firewall { ports, ranges } => format!("{ports:?} from {ranges:?}"),
        Spec::Backends { members } => {
            let members: Vec<&str> = members.iter().map(String::as_str).collect();
            members.join(",")
        }
        Spec::Head { ports, .. } => {
            let ports: Vec<String> = ports
                .iter()
                .map(|port| format!("{}/{}->{}", port.port, port.protocol, port.node_port))
                .collect();
            ports.join(",")
        }
    }
}

impl Provider {
    fn want(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Want> {
        let craft = self.session.craft();
        let name = craft.name(service)?;
        let members = craft.members(service, nodes);
        Ok(Want {
            owner: service.uid().to_owned(),
            specs: specs(service, &name, members),
            name,
        })
    }

    async fn make(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Ensured> {
        let want = self.want(service, nodes)?;
        let have = self.session.observe(&want.name).await?;
        let craft = self.session.craft();
        let have = self
            .session
            .converge(have, |have| craft.next(&want, have))
            .await?;
        Ok(Ensured::Ready {
            status: status(&have),
            notes: craft.notes(),
        })
    }
}

#[async_trait]
impl LoadBalancers for Provider {
    async fn get(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        let name = self.session.craft().name(service)?;
        let have = self.session.observe(&name).await?;
        Ok(self.session.craft().status(&have))
    }

    async fn ensure(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Ensured> {
        if !self.session.craft().detaches() {
            return self.make(service, nodes).await;
        }
        let (provider, service, nodes) = (self.clone(), service.clone(), nodes.to_vec());
        let made = tokio::spawn(async move { provider.make(&service, &nodes).await });
        made.await
            .unwrap_or_else(|error| Err(CloudError::transient(error.to_string())))
    }

    async fn update(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Updated> {
        let want = self.want(service, nodes)?;
        self.session.get_part(PartKind::Head, &want.name).await?;
        let backends = self
            .session
            .get_part(PartKind::Backends, &want.name)
            .await?;
        let wanted = want
            .specs
            .into_iter()
            .find(|spec| spec.kind() == PartKind::Backends && *spec != backends.spec);
        if let Some(spec) = wanted {
            self.session.apply(Action::Change(want.name, spec)).await?;
        }
        Ok(Updated::Done { notes: Vec::new() })
    }

    async fn delete(&self, service: &Service) -> CloudResult<()> {
        let craft = self.session.craft();
        let have = self.session.observe(&craft.name(service)?).await?;
        self.session
            .converge(have, |have| craft.removal(have))
            .await
            .map(|_| ())
    }
}
