//! Opens and closes the Nodes' security groups for a load balancer.
//!
//! Plans come from [`node_rules`](super::node_rules); here is who asks and who writes. One writer
//! at a time: the rules of several load balancers depend on each other.

mod classic;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex as StdMutex, PoisonError},
};

use ccm_core::cloud::{Class, CloudError, CloudResult, LoadBalancerName};
use futures::{StreamExt, stream};
use tokio::sync::Mutex;

use super::{
    classic_rules::Entrances,
    node_rules::{AllKnown, CleanUp, Known, Needs, Owner, clean_up, grants, names_load_balancer},
    quoted,
    vpc::{GroupMap, VpcSnapshot},
};
use crate::api::network::{Groups, NetworkApi, Rule, Rules, SecurityGroup};

pub use crate::optional::Optional;

/// Groups written to at once: enough to hide latency, too few to provoke throttling.
const CONCURRENT_GROUPS: usize = 8;

/// What a load balancer needs of its Nodes' groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The groups of its Nodes.
    pub groups: BTreeSet<String>,
    /// The rules.
    pub needs: Needs,
    /// Whether it has targets whose group is not known, so that a group that is not listed may be
    /// in use all the same.
    pub has_hidden: bool,
}

/// See the module documentation.
pub struct NodeGroups {
    api: Arc<dyn NetworkApi>,
    vpc: Arc<VpcSnapshot>,
    vpc_id: String,
    known: StdMutex<AllKnown>,
    entrances: StdMutex<Entrances>,
    writer: Mutex<()>,
    describe: Optional,
}

impl NodeGroups {
    /// For the groups of that VPC.
    pub fn new(api: Arc<dyn NetworkApi>, vpc: Arc<VpcSnapshot>, vpc_id: String) -> Self {
        Self {
            api,
            vpc,
            vpc_id,
            known: StdMutex::default(),
            entrances: StdMutex::default(),
            writer: Mutex::new(()),
            describe: Optional::default(),
        }
    }

    /// Adds the rules that the load balancer lacks in these groups. Every group is tried. In a full
    /// group its rules that are not needed any more make room first.
    ///
    /// # Errors
    /// The first failed group.
    pub async fn open(
        &self,
        name: &LoadBalancerName,
        access: &Access,
        own_ports: &BTreeSet<i32>,
    ) -> CloudResult<()> {
        let _one = self.writer.lock().await;
        self.learn(name, &access.groups, &access.needs);
        let known = self.known();
        let owner = Owner {
            name,
            own_ports,
            known: &known,
        };
        let have = self.read(&access.groups).await?;
        let writes = have
            .into_values()
            .map(|group| (grants(&group.rules, &access.needs, name), group));
        let writes: Vec<_> = writes.filter(|(rules, _)| !rules.is_empty()).collect();
        self.each(writes, |(rules, group)| {
            self.open_one(group, rules, &access.needs, owner)
        })
        .await
    }

    async fn open_one(
        &self,
        group: SecurityGroup,
        rules: Rules,
        needs: &Needs,
        owner: Owner<'_>,
    ) -> CloudResult<()> {
        let error = match self.authorize(group.id.clone(), rules.clone()).await {
            Err(error) if error.class() == Class::Quota => error,
            answer => return answer,
        };
        let stale = CleanUp {
            hand_over: Rules::new(),
            ..clean_up(&group.id, &group.rules, Some(needs), owner)
        };
        if stale.is_empty() {
            return Err(error);
        }
        // Ordinarily rules are removed last. Here that would never come.
        self.clean(group.id.clone(), stale.clone()).await?;
        let answer = self.authorize(group.id.clone(), rules).await;
        if answer.is_err() {
            // That was not enough: what the listeners still use is put back.
            let mut before = group.rules;
            before.retain(|rule, _| stale.revoke.contains(rule));
            self.authorize(group.id, before).await?;
        }
        answer
    }

    /// Removes the load balancer's rules that are not needed any more, also in groups that its
    /// Nodes do not use. Every group is tried.
    ///
    /// # Errors
    /// The first failed group.
    pub async fn close(
        &self,
        name: &LoadBalancerName,
        access: &Access,
        own_ports: &BTreeSet<i32>,
    ) -> CloudResult<()> {
        let _one = self.writer.lock().await;
        let groups = &access.groups;
        let known = self.known();
        let before = known
            .get(name)
            .map(|known| known.groups.clone())
            .unwrap_or_default();
        let tagged = self.vpc.tagged_groups().await?;
        let others = tagged.keys().chain(&before);
        let all: BTreeSet<String> = others
            .filter(|_| !access.has_hidden)
            .chain(groups)
            .cloned()
            .collect();
        let owner = Owner {
            name,
            own_ports,
            known: &known,
        };
        let have = self.read(&all).await?;
        let writes = have.values().map(|group| {
            let needs = groups.contains(&group.id).then_some(&access.needs);
            (
                group.id.clone(),
                clean_up(&group.id, &group.rules, needs, owner),
            )
        });
        let writes = writes.filter(|(_, plan)| !plan.is_empty()).collect();
        self.each(writes, |(group, plan)| self.clean(group, plan))
            .await?;
        if !access.has_hidden {
            self.known_mut(|known| {
                if let Some(known) = known.get_mut(name) {
                    known.groups.clone_from(groups);
                }
            });
        }
        Ok(())
    }

    /// What is left of a load balancer in the groups of the VPC, tagged or not: its Nodes may be
    /// gone. `all` is what was read of the VPC.
    pub fn leftovers(
        &self,
        name: &LoadBalancerName,
        own_ports: &BTreeSet<i32>,
        all: &GroupMap,
    ) -> BTreeMap<String, CleanUp> {
        let known = self.known();
        let owner = Owner {
            name,
            own_ports,
            known: &known,
        };
        all.values()
            .filter(|group| names_load_balancer(&group.rules, name))
            .map(|group| {
                (
                    group.id.clone(),
                    clean_up(&group.id, &group.rules, None, owner),
                )
            })
            .map(|(id, mut plan)| {
                // A rule that another load balancer needs stays as it is where its description may
                // not be changed; whoever needs it last finds it.
                if !self.describe.is_allowed() {
                    plan.hand_over.clear();
                }
                (id, plan)
            })
            .filter(|(_, plan)| !plan.is_empty())
            .collect()
    }

    /// All security groups of the VPC, read from the cloud.
    ///
    /// # Errors
    /// The cloud could not be asked.
    pub async fn all(&self) -> CloudResult<GroupMap> {
        let found = self.api.security_groups(&Groups::In(&self.vpc_id)).await;
        let found = found.map_err(|e| quoted("error querying for tagged security groups", e))?;
        Ok(found
            .into_iter()
            .map(|group| (group.id.clone(), group))
            .collect())
    }

    /// Removes what a load balancer that goes has left in one group. The plan is older than the
    /// lock: it only says which ports are known to be the load balancer's own. The group is read
    /// again and judged by what is needed now.
    ///
    /// # Errors
    /// The group could not be read or written.
    pub async fn clean_one(
        &self,
        name: &LoadBalancerName,
        group: String,
        plan: CleanUp,
    ) -> CloudResult<()> {
        let _one = self.writer.lock().await;
        // From now on nobody hands a rule of this group over to it.
        self.known_mut(|known| {
            if let Some(known) = known.get_mut(name) {
                known.groups.remove(&group);
            }
        });
        let mut known = self.known();
        known.retain(|_, known| known.groups.contains(&group));
        let own_ports = plan.revoke.iter().filter_map(|rule| rule.from).collect();
        let owner = Owner {
            name,
            own_ports: &own_ports,
            known: &known,
        };
        let have = read_rules(self.api.as_ref(), &group)
            .await
            .map_err(|e| quoted("error querying for tagged security groups", e))?;
        let mut now = clean_up(&group, &have, None, owner);
        // The MTU rule of a load balancer that is known and has let no client in yet.
        let needed: BTreeSet<Rule> = known
            .values()
            .flat_map(|known| known.needs.client.iter().filter_map(Rule::cidr))
            .map(Rule::mtu)
            .collect();
        now.revoke.retain(|rule| !needed.contains(rule));
        self.clean(group, now).await
    }

    /// Forgets a load balancer that is gone.
    pub fn forget(&self, name: &LoadBalancerName) {
        self.known_mut(|known| {
            known.remove(name);
        });
        self.entrances_mut(|known| {
            known.remove(name);
        });
    }

    fn learn(&self, name: &LoadBalancerName, groups: &BTreeSet<String>, needs: &Needs) {
        self.known_mut(|known| {
            let entry: &mut Known = known.entry(name.clone()).or_default();
            entry.needs.clone_from(needs);
            entry.groups.extend(groups.iter().cloned());
        });
    }

    fn known(&self) -> AllKnown {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn known_mut(&self, change: impl FnOnce(&mut AllKnown)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn entrances(&self) -> Entrances {
        self.entrances
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn entrances_mut(&self, change: impl FnOnce(&mut Entrances)) {
        change(
            &mut self
                .entrances
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    async fn read(&self, ids: &BTreeSet<String>) -> CloudResult<GroupMap> {
        let tagged = self.vpc.tagged_groups().await?;
        let others: BTreeSet<String> = ids
            .iter()
            .filter(|id| !tagged.contains_key(*id))
            .cloned()
            .collect();
        let mut found = if others.is_empty() {
            GroupMap::new()
        } else {
            self.vpc.other_groups(&others).await?
        };
        let ours = tagged.iter().filter(|(id, _)| ids.contains(*id));
        found.extend(ours.map(|(id, group)| (id.clone(), group.clone())));
        Ok(found)
    }

    async fn each<W, F>(&self, writes: Vec<W>, write: impl Fn(W) -> F) -> CloudResult<()>
    where
        F: Future<Output = CloudResult<()>>,
    {
        let answers: Vec<CloudResult<()>> = stream::iter(writes)
            .map(write)
            .buffered(CONCURRENT_GROUPS)
            .collect()
            .await;
        let failed = answers.into_iter().find_map(Result::err);
        if let Some(error) = failed {
            self.vpc.doubt_groups().await;
            return Err(error);
        }
        Ok(())
    }

    async fn authorize(&self, group: String, rules: Rules) -> CloudResult<()> {
        authorize(self.api.as_ref(), &group, &rules)
            .await
            .map_err(|e| quoted("error authorizing security group ingress", e))?;
        self.vpc
            .change_group(&group, |have| have.rules.extend(rules))
            .await;
        Ok(())
    }

    async fn clean(&self, group: String, plan: CleanUp) -> CloudResult<()> {
        if !plan.hand_over.is_empty() && self.describe.is_allowed() {
            let answer = self.api.describe_rules(&group, &plan.hand_over).await;
            if self
                .describe
                .check("UpdateSecurityGroupRuleDescriptionsIngress", answer)?
                .is_some()
            {
                let texts = plan.hand_over.clone();
                self.vpc
                    .change_group(&group, |have| have.rules.extend(texts))
                    .await;
            }
        }
        if !plan.revoke.is_empty() {
            revoke(self.api.as_ref(), &group, &plan.revoke).await?;
            self.vpc
                .change_group(&group, |have| {
                    have.rules.retain(|rule, _| !plan.revoke.contains(rule));
                })
                .await;
        }
        Ok(())
    }
}

/// Adds rules. A rule that is there already counts as added: AWS refuses the whole call because of
/// it, so the others are added in a second one.
///
/// # Errors
/// The group could not be written.
pub async fn authorize(api: &dyn NetworkApi, group: &str, rules: &Rules) -> CloudResult<()> {
    let error = match api.authorize(group, rules).await {
        Err(error) if error.code() == Some("InvalidPermission.Duplicate") => error,
        answer => return answer,
    };
    let have = read_rules(api, group).await?;
    let missing: Rules = rules
        .iter()
        .filter(|(rule, _)| !have.contains_key(*rule))
        .map(|(rule, text)| (rule.clone(), text.clone()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if missing.len() == rules.len() {
        return Err(error);
    }
    api.authorize(group, &missing).await
}

/// Removes rules. A rule or group that is not there counts as removed.
///
/// # Errors
/// The group could not be written.
pub async fn revoke(api: &dyn NetworkApi, group: &str, rules: &BTreeSet<Rule>) -> CloudResult<()> {
    let error = match api.revoke(group, rules).await {
        Err(error) if error.is_not_found() => error,
        answer => return answer,
    };
    let have = read_rules(api, group).await?;
    let left: BTreeSet<Rule> = rules
        .iter()
        .filter(|r| have.contains_key(*r))
        .cloned()
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    if left.len() == rules.len() {
        return Err(error);
    }
    api.revoke(group, &left).await
}

async fn read_rules(api: &dyn NetworkApi, group: &str) -> Result<Rules, CloudError> {
    let ids = BTreeSet::from([group.to_owned()]);
    let found = api.security_groups(&Groups::Ids(&ids)).await?;
    Ok(found
        .into_iter()
        .next()
        .map(|group| group.rules)
        .unwrap_or_default())
}
