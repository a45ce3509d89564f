//! Opens and closes the Nodes' security groups for a classic load balancer.

use std::collections::{BTreeMap, BTreeSet};

use ccm_core::cloud::{CloudResult, LoadBalancerName};

use super::NodeGroups;
use crate::{
    api::network::{Rule, Rules},
    load_balancer::{
        classic_rules::{Entrance, entrance, entrances, refers_to, stale},
        node_rules::CleanUp,
        vpc::GroupMap,
    },
};

impl NodeGroups {
    /// Lets in what comes from the source, in these groups. Every group is tried.
    ///
    /// # Errors
    /// The first failed group.
    pub async fn let_in(
        &self,
        name: &LoadBalancerName,
        source: &str,
        groups: &BTreeSet<String>,
    ) -> CloudResult<()> {
        let _one = self.writer.lock().await;
        self.entrances_mut(|known| {
            let entry: &mut Entrance = known.entry(name.clone()).or_default();
            if entry.source != source {
                *entry = Entrance::default();
                source.clone_into(&mut entry.source);
            }
            entry.groups.extend(groups.iter().cloned());
        });
        let have = self.read(groups).await?;
        let writes: Vec<String> = have
            .into_values()
            .filter(|group| entrances(&group.rules, source).is_empty())
            .map(|group| group.id)
            .collect();
        self.each(writes, |group| {
            self.authorize(group, Rules::from([(entrance(source), String::new())]))
        })
        .await
    }

    /// The rules in the cluster's groups, `tagged`, that let the source in for nobody who is known.
    /// `keep` are the groups that the load balancer itself uses.
    pub fn needless(
        &self,
        name: &LoadBalancerName,
        source: &str,
        keep: &BTreeSet<String>,
        tagged: &GroupMap,
    ) -> BTreeMap<String, BTreeSet<Rule>> {
        stale(name, source, keep, &self.entrances(), tagged)
    }

    /// Removes such rules and remembers the groups that are used instead. Every group is tried.
    ///
    /// # Errors
    /// The first failed group.
    pub async fn shut(
        &self,
        name: &LoadBalancerName,
        rules: BTreeMap<String, BTreeSet<Rule>>,
    ) -> CloudResult<()> {
        let _one = self.writer.lock().await;
        // Somebody may have come to need one meanwhile.
        let known = self.entrances();
        let is_free = |group: &String, rule: &Rule| {
            known.iter().all(|(other, entrance)| {
                other == name
                    || !entrance.groups.contains(group)
                    || !refers_to(rule, &entrance.source)
            })
        };
        let writes = rules
            .into_iter()
            .map(|(group, mut rules)| {
                rules.retain(|rule| is_free(&group, rule));
                (group, rules)
            })
            .filter(|(_, rules)| !rules.is_empty())
            .collect();
        self.each(writes, |(group, revoke)| {
            let plan = CleanUp {
                revoke,
                hand_over: Rules::new(),
            };
            self.clean(group, plan)
        })
        .await
    }

    /// The load balancer uses exactly these groups from now on.
    pub fn settle_entrance(&self, name: &LoadBalancerName, groups: &BTreeSet<String>) {
        self.entrances_mut(|known| {
            if let Some(entrance) = known.get_mut(name) {
                entrance.groups.clone_from(groups);
            }
        });
    }

    /// Whether the load balancer's needs are known.
    pub fn knows_entrance(&self, name: &str) -> bool {
        self.entrances().keys().any(|known| known.as_str() == name)
    }
}
