//! What the service controller would do.

use std::sync::Arc;

use futures::{StreamExt as _, stream};

use super::{ObjectPlan, Problem, Report};
use crate::{
    cloud::{CloudError, CloudResult, Ensured, LoadBalancers, RecordedWrite, Recorder},
    config::ControllerName,
    controllers::service::{
        Intent, OWN_MANAGERS, finalizer_added, finalizer_removed, intent,
        predicates::CLEANUP_FINALIZER, status_changed, targets::eligible,
    },
    kube::{LoadBalancerStatus, Node, ObjectKey, Service, ServiceWrites},
    session::{ListError, Runs, Session},
};

/// The call that every write to a Service is.
const PATCH: &str = "patch services/status";

/// What the plans of all Services share.
struct Planner<'a> {
    cloud: Arc<dyn LoadBalancers>,
    recorder: &'a Recorder,
    api: ServiceWrites,
    nodes: Vec<Arc<Node>>,
}

/// Plans every Service, as many at a time as the controller works on.
pub(super) async fn plan(
    session: &Session,
    recorder: &Recorder,
    nodes: &[Arc<Node>],
    report: &mut Report,
) -> Result<(), ListError> {
    if session.runs(ControllerName::Service) != Runs::Yes {
        return Ok(());
    }
    let Some(cloud) = session.cloud.load_balancers() else {
        return Ok(());
    };
    let services = session
        .services(|service| intent(service) != Intent::Nothing)
        .await?;
    report.looked_at.services = services.len();
    let planner = Planner {
        cloud,
        recorder,
        api: ServiceWrites::new(session.api.clone()),
        nodes: eligible(nodes.to_vec()),
    };
    let at_once = session.settings.service.syncs.max(1);
    report.services = stream::iter(&services)
        .map(|service| planner.service(service))
        // Ordered, whatever comes first.
        .buffered(at_once)
        .filter(|plan| std::future::ready(plan.is_worth_telling()))
        .collect()
        .await;
    Ok(())
}

impl Planner<'_> {
    async fn service(&self, service: &Service) -> ObjectPlan {
        let mut plan = ObjectPlan::new(ObjectKey::of(service).to_string());
        let work = async {
            match intent(service) {
                Intent::Nothing => Ok(()),
                Intent::Ensure => self.ensure(service, &mut plan).await,
                Intent::Delete => self.delete(service, false, &mut plan).await,
                Intent::DeleteForeign => self.delete(service, true, &mut plan).await,
            }
        };
        let (outcome, writes) = self.recorder.scope(Box::pin(work)).await;
        plan.cloud = writes;
        plan.problem = outcome.as_ref().err().map(Problem::from);
        plan
    }

    /// Finalizer, load balancer, status: the controller's order.
    async fn ensure(&self, service: &Service, plan: &mut ObjectPlan) -> CloudResult<()> {
        plan.intent = "its load balancer is made or changed as it asks";
        plan.api.extend(patch(service, finalizer_added(service)));
        let ensured = self.cloud.ensure(service, &self.nodes).await;
        let (status, notes) =
            match ensured.map_err(|error| error.context("failed to ensure load balancer"))? {
                Ensured::Ready { status, notes } => (Some(status), notes),
                Ensured::ImplementedElsewhere { notes } => {
                    plan.intent = "another controller serves it";
                    (None, notes)
                }
            };
        let notes = notes.into_iter();
        plan.notes
            .extend(notes.map(|note| format!("{}: {}", note.reason, note.message)));
        let changed = status.and_then(|status| status_changed(service, status));
        plan.api.extend(patch(service, changed));
        Ok(())
    }

    /// Status, load balancer, finalizer: the controller's order. Of a Service of another class
    /// only what is ours goes.
    async fn delete(
        &self,
        service: &Service,
        foreign: bool,
        plan: &mut ObjectPlan,
    ) -> CloudResult<()> {
        plan.intent = "its load balancer is removed";
        let found = self.cloud.get(service).await.map_err(|error| {
            error.context("failed to check if load balancer exists before cleanup")
        })?;
        let cleared = || status_changed(service, LoadBalancerStatus::default());
        if found.is_some() {
            if !foreign {
                plan.api.extend(patch(service, cleared()));
            }
            let deleted = self.cloud.delete(service).await;
            deleted.map_err(|error| error.context("failed to delete load balancer"))?;
        }
        if !foreign || found.is_some() || self.may_let_go(service).await? {
            plan.api.extend(patch(service, finalizer_removed(service)));
        }
        if !foreign && found.is_none() && remains(service) {
            plan.api.extend(patch(service, cleared()));
        }
        Ok(())
    }

    /// Whether our finalizer leaves a Service of another class of which we own nothing.
    async fn may_let_go(&self, service: &Service) -> CloudResult<bool> {
        if !service.is_deleting() || finalizer_removed(service).is_none() {
            return Ok(false);
        }
        let managers = self
            .api
            .finalizer_managers(service, CLEANUP_FINALIZER)
            .await
            .map_err(|error| {
                CloudError::transient(format!(
                    "failed to read who set the load balancer cleanup finalizer: {error}"
                ))
            })?;
        Ok(OWN_MANAGERS.iter().any(|own| managers.contains(*own)))
    }
}

/// Whether the object is still there without our finalizer.
fn remains(service: &Service) -> bool {
    let held = service.metadata.finalizers.iter().flatten();
    !service.is_deleting() || held.clone().any(|name| name != CLEANUP_FINALIZER)
}

fn patch(service: &Service, line: Option<String>) -> Option<RecordedWrite> {
    let object = || format!("Service {}", ObjectKey::of(service));
    line.map(|line| RecordedWrite::new(PATCH, object()).with(line))
}
