//! Health, metrics and what an operator asks, from the first moment on and on every replica.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Manager, ManagerError, Prepared, Tasks, prepare::Clients, start};
use crate::{
    config::AuthenticationSettings,
    runtime::{
        Authenticator, Authorizer, DelegatedMetrics, Endpoints, Gatekeeper, Inspection,
        SecureServing, serve,
    },
};

/// How long the API server is waited for before the secure port is served without the cluster's
/// authentication configuration, which is then looked for again and again.
const LOOKUP_WAITS: Duration = Duration::from_secs(10);

impl Manager {
    /// Starts to serve what the settings ask for.
    pub(super) async fn serve(
        &self,
        prepared: &Prepared,
        plain: Option<TcpListener>,
        secure: Option<SecureServing>,
        background: &CancellationToken,
    ) -> Result<Tasks, ManagerError> {
        let mut serving = Tasks::new();
        let endpoints = Endpoints::new(
            self.health(),
            prepared.queues.clone(),
            self.registry.clone(),
        )?;
        if let Some(listener) = plain {
            let routes = endpoints.plain();
            serving.spawn("plain port", serve(listener, routes, background.clone()));
        }
        let metrics = DelegatedMetrics::new(&self.registry)?;
        if let Some(secure) = secure {
            let gate = self.gatekeeper(&prepared.clients, &metrics).await?;
            let routes = endpoints.secure(Inspection {
                configz: self.settings.configz.clone(),
                loops: prepared.loops.clone(),
                profiling: self.settings.profiling,
                set_verbosity: self.set_verbosity.clone(),
            });
            let stop = background.clone();
            serving.spawn("secure port", async move {
                secure.run(routes, gate, stop).await;
            });
        }
        Ok(serving)
    }

    async fn gatekeeper(
        &self,
        clients: &Clients,
        metrics: &DelegatedMetrics,
    ) -> Result<Gatekeeper, ManagerError> {
        let (who, may) = (&self.settings.authentication, &self.settings.authorization);
        let (authentication, authorization) = match clients {
            Clients::Given(client) => (Some(client.clone()), Some(client.clone())),
            Clients::Made(factory) => {
                let who = factory
                    .for_reviews("--authentication-kubeconfig", who.kubeconfig.as_deref())
                    .await?;
                let may = factory
                    .for_reviews("--authorization-kubeconfig", may.kubeconfig.as_deref())
                    .await?;
                let who = who.map(|factory| factory.client("authentication"));
                let may = may.map(|factory| factory.client("authorization"));
                (who.transpose()?, may.transpose()?)
            }
        };
        let settings = patient(who, authentication.as_ref()).await;
        let random = self.random.clone();
        let authenticator = Authenticator::start(
            &settings,
            authentication,
            self.clock.clone(),
            random.clone(),
            metrics,
        )
        .await?;
        let authorizer = Authorizer::new(may, authorization, random, metrics);
        Ok(Gatekeeper::new(authenticator, authorizer))
    }
}

/// An API server that is away is waited for, as everywhere; only one that refuses the look-up is a
/// reason to end.
async fn patient(
    settings: &AuthenticationSettings,
    client: Option<&kube::Client>,
) -> AuthenticationSettings {
    let mut settings = settings.clone();
    if let Some(client) = client.filter(|_| !settings.skip_lookup) {
        let reached = start::wait_for_api_server(client, "(authentication)");
        if tokio::time::timeout(LOOKUP_WAITS, reached).await.is_err() {
            settings.tolerate_lookup_failure = true;
        }
    }
    settings
}
