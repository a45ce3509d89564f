//! The fence in front of every provider: an operation that changes the cloud is not begun without
//! the lease. A provider asks its own fence before each call within an operation as well.

use std::sync::Arc;

use async_trait::async_trait;

use super::{CloudResult, Ensured, LoadBalancers, Route, Routes, Updated, WantedRoute};
use crate::{
    kube::{LoadBalancerStatus, Node, Service},
    runtime::Fence,
};

struct Fenced<T: ?Sized> {
    inner: Arc<T>,
    fence: Fence,
}

/// Load balancers behind a fence.
pub(crate) fn fenced_load_balancers(
    inner: Arc<dyn LoadBalancers>,
    fence: Fence,
) -> Arc<dyn LoadBalancers> {
    Arc::new(Fenced { inner, fence })
}

/// Routes behind a fence.
pub(crate) fn fenced_routes(inner: Arc<dyn Routes>, fence: Fence) -> Arc<dyn Routes> {
    Arc::new(Fenced { inner, fence })
}

#[async_trait]
impl LoadBalancers for Fenced<dyn LoadBalancers> {
    async fn get(&self, service: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
        self.inner.get(service).await
    }

    async fn ensure(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Ensured> {
        self.fence.check()?;
        self.inner.ensure(service, nodes).await
    }

    async fn update(&self, service: &Service, nodes: &[Arc<Node>]) -> CloudResult<Updated> {
        self.fence.check()?;
        self.inner.update(service, nodes).await
    }

    async fn delete(&self, service: &Service) -> CloudResult<()> {
        self.fence.check()?;
        self.inner.delete(service).await
    }

    fn node_labels_matter(&self, service: &Service) -> bool {
        self.inner.node_labels_matter(service)
    }
}

#[async_trait]
impl Routes for Fenced<dyn Routes> {
    async fn list(&self, nodes: &[Arc<Node>]) -> CloudResult<Vec<Route>> {
        self.inner.list(nodes).await
    }

    async fn create(&self, routes: &[WantedRoute]) -> Vec<CloudResult<()>> {
        if self.fence.is_passable() {
            return self.inner.create(routes).await;
        }
        routes.iter().map(|_| self.fence.check()).collect()
    }

    async fn delete(&self, routes: &[Route]) -> Vec<CloudResult<()>> {
        if self.fence.is_passable() {
            return self.inner.delete(routes).await;
        }
        routes.iter().map(|_| self.fence.check()).collect()
    }

    fn batch_size(&self) -> usize {
        self.inner.batch_size()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Notes what reaches the cloud.
    #[derive(Default)]
    struct Calls(Mutex<Vec<&'static str>>);

    impl Calls {
        fn note(&self, call: &'static str) {
            self.0.lock().unwrap().push(call);
        }
    }

    #[async_trait]
    impl Routes for Calls {
        async fn list(&self, _: &[Arc<Node>]) -> CloudResult<Vec<Route>> {
            self.note("list");
            Ok(Vec::new())
        }

        async fn create(&self, routes: &[WantedRoute]) -> Vec<CloudResult<()>> {
            self.note("create");
            routes.iter().map(|_| Ok(())).collect()
        }

        async fn delete(&self, routes: &[Route]) -> Vec<CloudResult<()>> {
            self.note("delete");
            routes.iter().map(|_| Ok(())).collect()
        }
    }

    #[async_trait]
    impl LoadBalancers for Calls {
        async fn get(&self, _: &Service) -> CloudResult<Option<LoadBalancerStatus>> {
            self.note("get");
            Ok(None)
        }

        async fn ensure(&self, _: &Service, _: &[Arc<Node>]) -> CloudResult<Ensured> {
            self.note("ensure");
            Ok(Ensured::ImplementedElsewhere { notes: Vec::new() })
        }

        async fn update(&self, _: &Service, _: &[Arc<Node>]) -> CloudResult<Updated> {
            self.note("update");
            Ok(Updated::Done { notes: Vec::new() })
        }

        async fn delete(&self, _: &Service) -> CloudResult<()> {
            self.note("delete");
            Ok(())
        }
    }

    #[tokio::test]
    async fn without_the_lease_the_cloud_is_read_and_nothing_is_begun() {
        let (calls, service) = (Arc::new(Calls::default()), Service::default());
        let routes = fenced_routes(calls.clone(), Fence::waiting());
        let balancers = fenced_load_balancers(calls.clone(), Fence::waiting());
        let one = [Route::default()];
        assert!(routes.list(&[]).await.is_ok());
        assert!(routes.delete(&one).await.iter().all(Result::is_err));
        assert_eq!(routes.delete(&one).await.len(), 1);
        assert!(balancers.get(&service).await.is_ok());
        assert!(balancers.ensure(&service, &[]).await.is_err());
        assert!(balancers.update(&service, &[]).await.is_err());
        assert!(balancers.delete(&service).await.is_err());
        assert_eq!(*calls.0.lock().unwrap(), ["list", "get"]);
        let routes = fenced_routes(calls.clone(), Fence::open());
        assert!(routes.delete(&one).await.iter().all(Result::is_ok));
        let balancers = fenced_load_balancers(calls.clone(), Fence::open());
        assert!(balancers.delete(&service).await.is_ok());
        assert_eq!(calls.0.lock().unwrap().len(), 4);
    }
}
