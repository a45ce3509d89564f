//! Builds the provider: configuration, clients, who and where we are (specification: aws §1.2,
//! "Start-up order").

use std::sync::Arc;

use aws_sdk_ec2::config::SharedHttpClient;
use ccm_core::{
    cloud::{
        Build, BuildError, Class, Cloud, CloudError, Instances, Leftovers, LoadBalancers,
        OwnContext, OwnRun, Routes, Writes,
    },
    config::ControllerName,
};

use crate::{
    api::{
        Clients, Connect, Ec2, Instance, InstanceMetadataService, SdkEc2, SdkElb, SdkElbv2,
        SdkNetwork, SdkRoutes, SdkTagging, dry_run, elb::ElbApi, elbv2::Elbv2Api,
        network::NetworkApi,
    },
    config::CloudConfig,
    gc::AwsLeftovers,
    instances::{AwsInstances, Describer, InstanceStore, Setup, ZoneCache},
    load_balancer::{AwsLoadBalancers, settings::Settings},
    routes::{self, AwsRoutes},
    tagging::{self, TAGGING, TaggingController, TaggingSettings},
    tags::ClusterTags,
};

/// The name under which `--cloud-provider` selects this provider.
pub const NAME: &str = "aws";

/// AWS, as the manager sees it.
pub struct Aws {
    instances: Arc<AwsInstances>,
    load_balancers: Arc<AwsLoadBalancers>,
    leftovers: Arc<AwsLeftovers>,
    routes: Arc<AwsRoutes>,
    tagging: tagging::Setup,
    writes: Writes,
}

impl Cloud for Aws {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The Go manager has no node IPAM, and `--allocate-node-cidrs` is often among its flags: an
    /// allocator must not appear beside that of kube-controller-manager. Its tagging controller is off
    /// by default.
    fn off_by_default(&self) -> &'static [ControllerName] {
        &[ControllerName::NodeIpam, TAGGING]
    }

    fn instances(&self) -> Option<Arc<dyn Instances>> {
        Some(Arc::clone(&self.instances) as Arc<dyn Instances>)
    }

    fn load_balancers(&self) -> Option<Arc<dyn LoadBalancers>> {
        Some(Arc::clone(&self.load_balancers) as Arc<dyn LoadBalancers>)
    }

    fn leftovers(&self) -> Option<Arc<dyn Leftovers>> {
        Some(Arc::clone(&self.leftovers) as Arc<dyn Leftovers>)
    }

    fn records_writes(&self) -> bool {
        matches!(self.writes, Writes::Recorded(_))
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        Some(Arc::clone(&self.routes) as Arc<dyn Routes>)
    }

    fn own_controller(&self, name: ControllerName, own: &OwnContext<'_>) -> Result<OwnRun, String> {
        if name != TAGGING {
            return Err(format!("{NAME} has no controller {name}"));
        }
        let settings = TaggingSettings::of(own.flags).map_err(|e| e.to_string())?;
        let controller = TaggingController::new(own, self.tagging.clone(), settings);
        let controller = controller.map_err(|e| format!("{name}: {e}"))?;
        Ok(Box::new(|stop| Box::pin(controller.run(stop))))
    }
}

/// What is known once the process has found out who and where it is. The load balancers are made
/// from it.
pub struct Site {
    /// The cloud-config file.
    pub config: CloudConfig,
    /// The clients.
    pub clients: Clients,
    /// The cluster's identity in tags.
    pub cluster: ClusterTags,
    /// The cluster's VPC.
    pub vpc: String,
    /// The subnet to fall back to: the own instance's, off-instance `SubnetID`.
    pub subnet: String,
    /// The own instance; `None` in off-instance mode.
    pub self_instance: Option<Arc<Instance>>,
    /// Instances for the load balancers.
    pub store: Arc<InstanceStore>,
    /// The zones of the region.
    pub zones: Arc<ZoneCache>,
    /// Look-ups of instances.
    pub describer: Arc<Describer>,
    /// EC2.
    pub ec2: Arc<dyn Ec2>,
}

/// Builds the provider over this way out of the process.
pub(crate) async fn build(
    build: Build,
    http: SharedHttpClient,
) -> Result<Arc<dyn Cloud>, BuildError> {
    let site = Site::find(&build, http).await?;
    let instances = AwsInstances::new(Setup {
        ec2: Arc::clone(&site.ec2),
        describer: Arc::clone(&site.describer),
        store: Arc::clone(&site.store),
        zones: Arc::clone(&site.zones),
        region: site.clients.region.clone(),
        vpc: site.vpc.clone(),
        families: site.config.node_ip_families.clone(),
        topology_pattern: site.config.topology_pattern.clone(),
        self_instance: site.self_instance.clone(),
    });
    let cluster_name = build.cluster_name.as_str().to_owned();
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let routes = AwsRoutes::new(routes::Setup {
        api: Arc::new(SdkRoutes::new(
            site.clients.ec2.clone(),
            site.clients.ec2_calls.clone(),
        )),
        describer: Arc::clone(&site.describer),
        cluster: site.cluster.clone(),
        cluster_name: cluster_name.clone(),
        table_id: given(&site.config.route_table_id),
    });
    let tagging = tagging::Setup {
        api: Arc::new(SdkTagging::new(
            site.clients.ec2.clone(),
            site.clients.ec2_calls.clone(),
        )),
        store: Arc::clone(&site.store),
    };
    let (load_balancers, leftovers) = load_balancers(site, cluster_name, &build.writes);
    Ok(Arc::new(Aws {
        tagging,
        instances: Arc::new(instances),
        load_balancers,
        leftovers: Arc::new(leftovers),
        routes: Arc::new(routes),
        writes: build.writes,
    }))
}

/// The load balancers, and what looks for those without an owner, over the same APIs.
fn load_balancers(
    site: Site,
    cluster_name: String,
    writes: &Writes,
) -> (Arc<AwsLoadBalancers>, AwsLeftovers) {
    let Site {
        config, clients, ..
    } = site;
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let settings = Settings {
        cluster_name,
        tags: site.cluster,
        vpc_id: site.vpc,
        fallback_subnet: given(site.subnet),
        disable_node_rules: config.disable_security_group_ingress,
        delete_released: config.delete_released_load_balancers,
        elb_security_group: given(config.elb_security_group),
        managed_security_groups: config.nlb_security_group_managed,
        health_probe: config.health_probe,
    };
    let sdk = Arc::new(SdkElbv2::new(clients.elbv2, clients.elbv2_calls));
    let elbv2: Arc<dyn Elbv2Api> = dry_run::elbv2(Arc::clone(&sdk) as _, writes, &settings.vpc_id);
    let elb: Arc<dyn ElbApi> = Arc::new(SdkElb::new(clients.elb, clients.elb_calls));
    let elb = dry_run::elb(elb, writes);
    let network: Arc<dyn NetworkApi> = Arc::new(SdkNetwork::new(clients.ec2, clients.ec2_calls));
    let network = dry_run::network(network, writes);
    let load_balancers = Arc::new(AwsLoadBalancers::new(
        Arc::clone(&elbv2),
        elb,
        Arc::clone(&network),
        Arc::clone(&site.store),
        settings.clone(),
    ));
    let leftovers = AwsLeftovers {
        all: sdk,
        elb: elbv2,
        network,
        load_balancers: Arc::clone(&load_balancers) as _,
        instances: site.store,
        settings,
    };
    (load_balancers, leftovers)
}

impl Site {
    async fn find(build: &Build, http: SharedHttpClient) -> Result<Self, BuildError> {
        let config = CloudConfig::load(build.config.as_ref())
            .map_err(|e| BuildError::Config(e.to_string()))?;
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        if !config.without_effect.is_empty() {
            tracing::info!(
                keys = config.without_effect.join(", "),
                "cloud config has keys of features that this version does not have; they are ignored"
            );
        }
        let metadata = InstanceMetadataService::new(&config, &build.env, &http, &build.clock)
            .map_err(|e| BuildError::Config(e.to_string()))?;
        let region = match config.configured_region() {
            Some(region) => region,
            None => metadata
                .region()
                .await
                .map_err(|e| failed("the region; set Region in the cloud config, or", &e))?,
        };
        let clients = Clients::connect(Connect {
            config: &config,
            env: &build.env,
            region: &region,
            http,
            clock: build.clock.clone(),
            registry: &build.metrics,
            fence: build.fence.clone(),
        })
        .await
        .map_err(|e| BuildError::Config(format!("metrics of the AWS provider: {e}")))?;
        let ec2: Arc<dyn Ec2> = Arc::new(SdkEc2::new(&clients));
        let zones = Arc::new(ZoneCache::new(Arc::clone(&ec2)));
        // The first call: it shows at once whether endpoint and credentials are good.
        zones
            .refill()
            .await
            .map_err(|e| refused("ec2:DescribeAvailabilityZones", &e))?;
        let self_instance = if config.is_off_instance() {
            None
        } else {
            Some(own_instance(&metadata, &*ec2).await?)
        };
        let cluster = cluster(&config, self_instance.as_ref())?;
        tracing::info!(
            cluster = cluster.id(),
            region,
            off_instance = config.is_off_instance(),
            "found out which cluster this is"
        );
        let describer = Describer::new(Arc::clone(&ec2), cluster.clone());
        let store = Arc::new(InstanceStore::new(Arc::clone(&describer), cluster.clone()));
        // On an instance VPC and SubnetID of the file do not count.
        let (vpc, subnet) = match &self_instance {
            Some(own) => (own.vpc_id.clone(), own.subnet_id.clone()),
            None => (config.vpc.clone(), config.subnet_id.clone()),
        };
        Ok(Self {
            self_instance: self_instance.map(Arc::new),
            config,
            clients,
            cluster,
            vpc,
            subnet,
            store,
            zones,
            describer,
            ec2,
        })
    }
}

async fn own_instance(
    metadata: &InstanceMetadataService,
    ec2: &dyn Ec2,
) -> Result<Instance, BuildError> {
    let id = metadata.instance_id().await.map_err(|e| {
        failed(
            "the own instance; to run outside of AWS set VPC, KubernetesClusterID and SubnetID or \
             RoleARN in the cloud config, else",
            &e,
        )
    })?;
    let found = ec2.describe_instances(std::slice::from_ref(&id)).await;
    let found = found.map_err(|e| refused("ec2:DescribeInstances", &e))?;
    found
        .into_iter()
        .find(|instance| instance.id == id)
        .ok_or_else(|| {
            BuildError::Unreachable(format!("EC2 does not know the own instance {id} yet"))
        })
}

/// Which cluster this is: the file says so, else the tags of the own instance.
fn cluster(config: &CloudConfig, own: Option<&Instance>) -> Result<ClusterTags, BuildError> {
    let configured = ClusterTags::new(
        &config.kubernetes_cluster_tag,
        &config.kubernetes_cluster_id,
    );
    let found = match (configured, own) {
        (Ok(None), Some(own)) => ClusterTags::from_tags(&own.tags),
        (configured, _) => configured,
    };
    let found = found.map_err(|e| BuildError::Config(e.to_string()))?;
    found.ok_or_else(|| {
        BuildError::Config(
            "AWS cloud failed to find ClusterID; tag the instance with \
             kubernetes.io/cluster/<id>=owned or set KubernetesClusterID in the cloud config"
                .to_owned(),
        )
    })
}

/// The metadata service did not tell us.
fn failed(what: &str, error: &CloudError) -> BuildError {
    let text = format!(
        "cannot determine {what} let the pod reach the instance metadata service (host network, or \
         a hop limit of 2): {error}"
    );
    match error.class() {
        Class::Invalid => BuildError::Config(text),
        _ => BuildError::Unreachable(text),
    }
}

/// The cloud refused the call or could not be reached.
fn refused(action: &str, error: &CloudError) -> BuildError {
    BuildError::Unreachable(match error.class() {
        Class::Denied => format!("AWS denies {action}; allow it for our credentials: {error}"),
        _ => format!("AWS cannot be reached ({action}): {error}"),
    })
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
