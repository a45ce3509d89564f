//! The side that tests use: make and change resources without HTTP, read the state.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::Ipv4Net;

use super::Aws;
use super::ec2::Kind;
use super::ec2::launch::RunInstance;
use super::model::{Address, Attachment, Instance, InstanceState, Snapshot, Tags};
use super::state::{Quotas, Settings};
use crate::control::CloudError;

/// The ids that [`Aws::standard_cluster`] made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// VPC 10.20.0.0/16.
    pub vpc_id: String,
    /// Three public subnets, one per zone, in the order of the zones.
    pub subnet_ids: Vec<String>,
    /// Internet gateway.
    pub internet_gateway_id: String,
    /// Main route table, with a default route to the Internet gateway.
    pub route_table_id: String,
    /// The security group of the nodes.
    pub security_group_id: String,
    /// The nodes, spread over the subnets.
    pub instance_ids: Vec<String>,
}

fn parse_cidr(cidr: &str) -> Result<Ipv4Net, CloudError> {
    let text = format!(
        "Value ({cidr}) for parameter cidrBlock is invalid. This is not a valid CIDR block."
    );
    cidr.parse()
        .map_err(|_| CloudError::new("InvalidParameterValue", text))
}

impl Aws {
    /// Makes a VPC with its main route table and default security group.
    ///
    /// # Errors
    /// If `cidr` is not an IPv4 range.
    pub fn create_vpc(&self, cidr: &str) -> Result<String, CloudError> {
        let cidr = parse_cidr(cidr)?;
        Ok(self.lock().create_vpc(cidr, Tags::new()))
    }

    /// Makes a subnet in a zone, given by name.
    ///
    /// # Errors
    /// As CreateSubnet of EC2.
    pub fn create_subnet(
        &self,
        vpc_id: &str,
        cidr: &str,
        zone: &str,
        tags: Tags,
    ) -> Result<String, CloudError> {
        let cidr = parse_cidr(cidr)?;
        self.lock().create_subnet(vpc_id, cidr, None, zone, tags)
    }

    /// Makes an Internet gateway and attaches it to the VPC.
    ///
    /// # Errors
    /// As AttachInternetGateway of EC2.
    pub fn create_internet_gateway(&self, vpc_id: &str) -> Result<String, CloudError> {
        let mut state = self.lock();
        state.vpc(vpc_id)?;
        let id = state.create_internet_gateway(Tags::new());
        state.attach_internet_gateway(&id, vpc_id)?;
        Ok(id)
    }

    /// The main route table of a VPC.
    ///
    /// # Errors
    /// If the VPC does not exist.
    pub fn main_route_table(&self, vpc_id: &str) -> Result<String, CloudError> {
        let state = self.lock();
        state.vpc(vpc_id)?;
        let missing = || Kind::RouteTable.not_found(&["main".to_owned()]);
        state.main_route_table(vpc_id).ok_or_else(missing)
    }

    /// Makes a route table.
    ///
    /// # Errors
    /// If the VPC does not exist.
    pub fn create_route_table(&self, vpc_id: &str, tags: Tags) -> Result<String, CloudError> {
        self.lock().create_route_table(vpc_id, tags)
    }

    /// Makes a route table with a default route to the Internet gateway and associates the subnets with it.
    ///
    /// # Errors
    /// If one of the resources does not exist or a subnet has a table already.
    pub fn create_public_route_table(
        &self,
        vpc_id: &str,
        gateway_id: &str,
        subnet_ids: &[String],
    ) -> Result<String, CloudError> {
        let id = self.create_route_table(vpc_id, Tags::new())?;
        self.add_route(&id, "0.0.0.0/0", gateway_id)?;
        for subnet_id in subnet_ids {
            self.associate_route_table(&id, subnet_id)?;
        }
        Ok(id)
    }

    /// Associates a subnet with a route table; returns the id of the association.
    ///
    /// # Errors
    /// As AssociateRouteTable of EC2.
    pub fn associate_route_table(
        &self,
        table_id: &str,
        subnet_id: &str,
    ) -> Result<String, CloudError> {
        self.lock().associate_route_table(table_id, subnet_id)
    }

    /// Adds a route to a gateway, instance or interface.
    ///
    /// # Errors
    /// As CreateRoute of EC2.
    pub fn add_route(
        &self,
        table_id: &str,
        destination: &str,
        target: &str,
    ) -> Result<(), CloudError> {
        self.lock().create_route(table_id, destination, target)
    }

    /// Makes a security group without ingress rules.
    ///
    /// # Errors
    /// As CreateSecurityGroup of EC2.
    pub fn create_security_group(
        &self,
        vpc_id: &str,
        name: &str,
        tags: Tags,
    ) -> Result<String, CloudError> {
        self.lock().create_security_group(vpc_id, name, name, tags)
    }

    /// Allocates an elastic IP address.
    pub fn allocate_address(&self) -> Address {
        self.lock().allocate_address(Tags::new())
    }

    /// Launches an instance; returns its id.
    ///
    /// # Errors
    /// If the subnet or a group does not exist or the address is taken.
    pub fn run_instance(&self, wanted: RunInstance) -> Result<String, CloudError> {
        let mut state = self.lock();
        let reservation = state.new_id("r");
        let id = state.run_instance(wanted, &reservation)?;
        let now = state.now;
        state.advance(now);
        Ok(id)
    }

    /// Terminates an instance. It stays visible as `terminated` for a time.
    ///
    /// # Errors
    /// If the instance does not exist.
    pub fn terminate(&self, id: &str) -> Result<(), CloudError> {
        self.change(id, InstanceState::ShuttingDown, InstanceState::Terminated)
    }

    /// Stops an instance.
    ///
    /// # Errors
    /// If the instance does not exist or is terminated.
    pub fn stop(&self, id: &str) -> Result<(), CloudError> {
        self.change(id, InstanceState::Stopping, InstanceState::Stopped)
    }

    /// Starts a stopped instance.
    ///
    /// # Errors
    /// If the instance does not exist or is terminated.
    pub fn start(&self, id: &str) -> Result<(), CloudError> {
        self.change(id, InstanceState::Pending, InstanceState::Running)
    }

    fn change(&self, id: &str, by: InstanceState, to: InstanceState) -> Result<(), CloudError> {
        let mut state = self.lock();
        state.change_state(id, by, to)?;
        let now = state.now;
        state.advance(now);
        Ok(())
    }

    /// Puts an instance into a state at once, and keeps it there.
    ///
    /// # Errors
    /// If the instance does not exist.
    pub fn set_state(&self, id: &str, wanted: InstanceState) -> Result<(), CloudError> {
        let mut state = self.lock();
        let now = state.now;
        instance(&mut state.all, id)?.next = Some((now, wanted));
        state.advance(now);
        Ok(())
    }

    /// Removes every trace of an instance: it answers `InvalidInstanceID.NotFound` from now on.
    ///
    /// # Errors
    /// If the instance does not exist.
    pub fn forget(&self, id: &str) -> Result<(), CloudError> {
        self.set_state(id, InstanceState::Terminated)?;
        self.lock().all.instances.remove(id);
        Ok(())
    }

    /// Changes the type of an instance in any state.
    ///
    /// # Errors
    /// If the instance does not exist.
    pub fn set_instance_type(&self, id: &str, instance_type: &str) -> Result<(), CloudError> {
        let mut state = self.lock();
        instance_type.clone_into(&mut instance(&mut state.all, id)?.instance_type);
        Ok(())
    }

    /// Sets tags on any EC2 resource.
    ///
    /// # Errors
    /// As CreateTags of EC2.
    pub fn set_tags(&self, id: &str, tags: &Tags) -> Result<(), CloudError> {
        self.lock().create_tags(&[id.to_owned()], tags)
    }

    /// Removes tags from an EC2 resource by key.
    ///
    /// # Errors
    /// If the resource does not exist.
    pub fn remove_tags(&self, id: &str, keys: &[&str]) -> Result<(), CloudError> {
        self.lock()
            .ec2_tags(id)?
            .retain(|key, _| !keys.contains(&key.as_str()));
        Ok(())
    }

    /// Attaches one more interface in the instance's subnet, or in the subnet that holds the first address.
    ///
    /// # Errors
    /// If the instance does not exist or no subnet of its VPC holds the address.
    pub fn attach_eni(
        &self,
        id: &str,
        device_index: u32,
        ips: &[Ipv4Addr],
    ) -> Result<String, CloudError> {
        let mut state = self.lock();
        let own = instance(&mut state.all, id)?.clone();
        let subnet = match ips.first() {
            Some(ip) => {
                let mut subnets = state.all.subnets.values();
                let found =
                    subnets.find(|subnet| subnet.vpc_id == own.vpc_id && subnet.cidr.contains(ip));
                let text = format!(
                    "No subnet of {} holds {ip}: create the subnet first",
                    own.vpc_id
                );
                found
                    .map(|subnet| subnet.id.clone())
                    .ok_or_else(|| CloudError::new("InvalidParameterValue", text))?
            }
            None => own.subnet_id,
        };
        let ips = if ips.is_empty() {
            vec![state.free_address(&subnet)?]
        } else {
            ips.to_vec()
        };
        let interface = state.new_interface(&subnet, ips, own.groups)?;
        Ok(state.attach(interface, id, device_index))
    }

    /// Adds addresses to the primary interface of an instance.
    ///
    /// # Errors
    /// If the instance does not exist.
    pub fn add_addresses(
        &self,
        id: &str,
        ips: &[Ipv4Addr],
        ipv6: &[Ipv6Addr],
    ) -> Result<(), CloudError> {
        let mut state = self.lock();
        instance(&mut state.all, id)?;
        let primary = state.interfaces_of(id).first().map(|eni| eni.id.clone());
        if let Some(eni) = primary.and_then(|id| state.all.interfaces.get_mut(&id)) {
            eni.private_ips.extend(ips);
            eni.ipv6.extend(ipv6);
            state.used_addresses = None;
        }
        Ok(())
    }

    /// An interface as Fargate makes it: attached, but to no instance of this account.
    ///
    /// # Errors
    /// If the subnet does not exist.
    pub fn create_fargate_eni(
        &self,
        subnet_id: &str,
        ip: Ipv4Addr,
        ipv6: Option<Ipv6Addr>,
    ) -> Result<String, CloudError> {
        let mut state = self.lock();
        let mut interface = state.new_interface(subnet_id, vec![ip], Vec::new())?;
        interface.ipv6.extend(ipv6);
        interface.attachment = Some(Attachment {
            id: state.new_id("ela-attach"),
            instance_id: None,
            device_index: 1,
            status: "attached".to_owned(),
        });
        let id = interface.id.clone();
        state.store_interface(interface);
        Ok(id)
    }

    /// Whether DescribeInstances returns interfaces in random order (CASE-NODE-03).
    pub fn set_enis_order_random(&self, random: bool) {
        self.configure(|settings| settings.random_eni_order = random);
    }

    /// Hides an id from all calls for a time, as an eventually consistent cloud does with new resources.
    pub fn hide(&self, id: &str, duration: Duration) {
        self.lock().hide(id, duration);
    }

    /// Switches deletion protection of a load balancer on or off.
    ///
    /// # Errors
    /// If the load balancer does not exist.
    pub fn set_deletion_protection(
        &self,
        load_balancer_arn: &str,
        protected: bool,
    ) -> Result<(), CloudError> {
        let mut state = self.lock();
        let lb = state.load_balancer(load_balancer_arn)?;
        lb.attributes.insert(
            "deletion_protection.enabled".to_owned(),
            protected.to_string(),
        );
        Ok(())
    }

    /// Makes a certificate ARN unknown. All other ARNs of ACM and IAM are taken as existing.
    pub fn remove_certificate(&self, arn: &str) {
        self.lock().missing_certificates.push(arn.to_owned());
    }

    /// The instance that the metadata service describes; `None` switches the service off.
    pub fn set_self_instance(&self, id: Option<&str>) {
        self.lock().self_instance = id.map(str::to_owned);
    }

    /// Changes settings.
    pub fn configure(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.lock().settings);
    }

    /// The present settings.
    pub fn settings(&self) -> Settings {
        self.read().settings.clone()
    }

    /// Changes quotas.
    pub fn set_quotas(&self, change: impl FnOnce(&mut Quotas)) {
        change(&mut self.lock().quotas);
    }

    /// The present quotas.
    pub fn quotas(&self) -> Quotas {
        self.read().quotas.clone()
    }

    /// A copy of the whole state.
    pub fn snapshot(&self) -> Snapshot {
        self.read().all.clone()
    }

    /// A copy of one instance.
    pub fn instance(&self, id: &str) -> Option<Instance> {
        self.read().all.instances.get(id).cloned()
    }

    /// VPC 10.20.0.0/16 with three public subnets in three zones, an Internet gateway, one security group and
    /// `n` instances; everything carries the tag `kubernetes.io/cluster/<cluster_id>=owned`, the subnets also
    /// the role tags for public and internal load balancers.
    ///
    /// # Errors
    /// If the region has fewer than three availability zones, or the subnets are full.
    pub fn standard_cluster(&self, cluster_id: &str, n: usize) -> Result<Cluster, CloudError> {
        let owned = Tags::from([(
            format!("kubernetes.io/cluster/{cluster_id}"),
            "owned".to_owned(),
        )]);
        let vpc_id = self.create_vpc("10.20.0.0/16")?;
        let internet_gateway_id = self.create_internet_gateway(&vpc_id)?;
        let route_table_id = self.main_route_table(&vpc_id)?;
        self.add_route(&route_table_id, "0.0.0.0/0", &internet_gateway_id)?;
        let mut subnet_tags = owned.clone();
        for role in ["elb", "internal-elb"] {
            subnet_tags.insert(format!("kubernetes.io/role/{role}"), "1".to_owned());
        }
        let zones = self.lock().zones.clone();
        let zones = zones
            .into_iter()
            .filter(|zone| zone.kind == "availability-zone");
        let mut subnet_ids = Vec::new();
        for (zone, cidr) in zones.zip(["10.20.0.0/20", "10.20.16.0/20", "10.20.32.0/20"]) {
            subnet_ids.push(self.create_subnet(&vpc_id, cidr, &zone.name, subnet_tags.clone())?);
        }
        if subnet_ids.len() < 3 {
            return Err(CloudError::new(
                "InvalidParameterValue",
                "standard_cluster needs three availability zones",
            ));
        }
        let security_group_id =
            self.create_security_group(&vpc_id, &format!("nodes.{cluster_id}"), owned.clone())?;
        let mut instance_ids = Vec::new();
        let mut state = self.lock();
        for subnet in subnet_ids.iter().cycle().take(n) {
            let wanted = RunInstance {
                subnet: subnet.clone(),
                security_groups: vec![security_group_id.clone()],
                tags: owned.clone(),
                public_ip: true,
                ..RunInstance::default()
            };
            let reservation = state.new_id("r");
            instance_ids.push(state.run_instance(wanted, &reservation)?);
        }
        drop(state);
        Ok(Cluster {
            vpc_id,
            subnet_ids,
            internet_gateway_id,
            route_table_id,
            security_group_id,
            instance_ids,
        })
    }
}

fn instance<'a>(all: &'a mut Snapshot, id: &str) -> Result<&'a mut Instance, CloudError> {
    let missing = || Kind::Instance.not_found(&[id.to_owned()]);
    all.instances.get_mut(id).ok_or_else(missing)
}
