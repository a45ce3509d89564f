//! The network side of EC2 for a plan. Security groups are shown as they would be by then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use ccm_core::cloud::{CloudResult, RecordedWrite, Recorder};

use super::seen::map_difference;
use crate::{
    api::network::{
        Groups, NetworkApi, NewSecurityGroup, RouteTable, Rule, Rules, SecurityGroup, Source,
        Subnet,
    },
    tags::Tags,
};

/// What was recorded of one group's rules and tags.
#[derive(Debug, Default)]
struct Edits {
    added: Rules,
    removed: BTreeSet<Rule>,
    tags: Tags,
}

impl Edits {
    fn apply(&self, group: &mut SecurityGroup) {
        group.rules.retain(|rule, _| !self.removed.contains(rule));
        group.rules.extend(self.added.clone());
        group.tags.extend(self.tags.clone());
    }
}

/// What was recorded. It grows with the plan.
#[derive(Debug, Default)]
struct Recorded {
    made: BTreeMap<String, SecurityGroup>,
    edits: BTreeMap<String, Edits>,
    deleted: BTreeSet<String>,
    /// Names that reads have shown, by id.
    names: BTreeMap<String, String>,
}

impl Recorded {
    /// The groups as they would be.
    fn overlay(&mut self, which: &Groups<'_>, found: &mut Vec<SecurityGroup>) {
        found.retain(|group| !self.deleted.contains(&group.id));
        for group in &*found {
            self.names.insert(group.id.clone(), group.name.clone());
        }
        found.extend(
            self.made
                .values()
                .filter(|g| is_asked_for(which, g))
                .cloned(),
        );
        for group in found {
            if let Some(edits) = self.edits.get(&group.id) {
                edits.apply(group);
            }
        }
    }

    fn label(&self, id: &str) -> String {
        match self.names.get(id).filter(|name| !name.is_empty()) {
            Some(name) => format!("security group {id} ({name})"),
            None => format!("security group {id}"),
        }
    }
}

fn is_asked_for(which: &Groups<'_>, group: &SecurityGroup) -> bool {
    match which {
        Groups::Tagged { vpc, keys } => {
            group.vpc_id == *vpc && keys.iter().any(|key| group.tags.contains_key(key))
        }
        Groups::Named { vpc, name } => group.vpc_id == *vpc && group.name == *name,
        Groups::Ids(ids) => ids.contains(&group.id),
        Groups::In(vpc) => group.vpc_id == *vpc,
    }
}

/// See the module documentation.
pub(super) struct RecordedNetwork {
    inner: Arc<dyn NetworkApi>,
    recorder: Recorder,
    recorded: Mutex<Recorded>,
}

impl RecordedNetwork {
    pub(super) fn new(inner: Arc<dyn NetworkApi>, recorder: Recorder) -> Self {
        Self {
            inner,
            recorder,
            recorded: Mutex::default(),
        }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn edit(&self, id: &str, edit: impl FnOnce(&mut Edits)) {
        edit(self.recorded().edits.entry(id.to_owned()).or_default());
    }

    fn record(&self, action: &'static str, id: &str, lines: impl IntoIterator<Item = String>) {
        let object = self.recorded().label(id);
        self.recorder
            .record(RecordedWrite::new(action, object).with_all(lines));
    }
}

/// A rule in one line.
pub(crate) fn rule_text(rule: &Rule, description: &str) -> String {
    let ports = match (rule.from, rule.to) {
        (Some(from), Some(to)) if from == to => format!(" {from}"),
        (Some(from), Some(to)) => format!(" {from}-{to}"),
        _ => String::new(),
    };
    let source = match &rule.source {
        Source::Cidr(cidr) => cidr.to_string(),
        Source::Group { id, .. } => id.clone(),
    };
    let text = if description.is_empty() {
        String::new()
    } else {
        format!(" ({description})")
    };
    format!("rule: {}{ports} from {source}{text}", rule.protocol)
}

#[async_trait]
impl NetworkApi for RecordedNetwork {
    async fn subnets(&self, vpc: &str) -> CloudResult<Vec<Subnet>> {
        self.inner.subnets(vpc).await
    }

    async fn route_tables(&self, vpc: &str) -> CloudResult<Vec<RouteTable>> {
        self.inner.route_tables(vpc).await
    }

    async fn zone_kinds(&self) -> CloudResult<BTreeMap<String, String>> {
        self.inner.zone_kinds().await
    }

    async fn security_groups(&self, which: &Groups<'_>) -> CloudResult<Vec<SecurityGroup>> {
        let mut found = self.inner.security_groups(which).await?;
        self.recorded().overlay(which, &mut found);
        Ok(found)
    }

    async fn create_security_group(&self, new: &NewSecurityGroup) -> CloudResult<String> {
        let id = {
            let mut recorded = self.recorded();
            let id = format!("sg-known-after-apply-{}", recorded.made.len() + 1);
            let group = SecurityGroup {
                id: id.clone(),
                name: new.name.clone(),
                description: new.description.clone(),
                vpc_id: new.vpc_id.clone(),
                tags: new.tags.clone(),
                rules: Rules::new(),
            };
            recorded.names.insert(id.clone(), new.name.clone());
            recorded.made.insert(id.clone(), group);
            id
        };
        let tags = new
            .tags
            .iter()
            .map(|(key, value)| format!("tag {key}: {value}"));
        self.record("CreateSecurityGroup", &id, tags);
        Ok(id)
    }

    async fn delete_security_group(&self, id: &str) -> CloudResult<()> {
        self.record("DeleteSecurityGroup", id, None);
        let mut recorded = self.recorded();
        recorded.made.remove(id);
        recorded.deleted.insert(id.to_owned());
        Ok(())
    }

    async fn authorize(&self, group: &str, rules: &Rules) -> CloudResult<()> {
        let lines = rules.iter().map(|(rule, text)| rule_text(rule, text));
        self.record("AuthorizeSecurityGroupIngress", group, lines);
        self.edit(group, |edits| {
            edits.removed.retain(|rule| !rules.contains_key(rule));
            edits.added.extend(rules.clone());
        });
        Ok(())
    }

    async fn revoke(&self, group: &str, rules: &BTreeSet<Rule>) -> CloudResult<()> {
        let lines = rules.iter().map(|rule| rule_text(rule, ""));
        self.record("RevokeSecurityGroupIngress", group, lines);
        self.edit(group, |edits| {
            edits.added.retain(|rule, _| !rules.contains(rule));
            edits.removed.extend(rules.iter().cloned());
        });
        Ok(())
    }

    async fn describe_rules(&self, group: &str, rules: &Rules) -> CloudResult<()> {
        let lines = rules.iter().map(|(rule, text)| rule_text(rule, text));
        self.record("UpdateSecurityGroupRuleDescriptionsIngress", group, lines);
        self.edit(group, |edits| edits.added.extend(rules.clone()));
        Ok(())
    }

    async fn tag_resource(&self, id: &str, tags: &Tags) -> CloudResult<()> {
        self.record("CreateTags", id, map_difference("tag", None, tags));
        self.edit(id, |edits| edits.tags.extend(tags.clone()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(id: &str, rules: &[i32]) -> SecurityGroup {
        let rule = |port: &i32| {
            (
                Rule::port("tcp", *port, "0.0.0.0/0".parse().unwrap()),
                String::new(),
            )
        };
        SecurityGroup {
            id: id.to_owned(),
            name: format!("name of {id}"),
            vpc_id: "vpc-1".to_owned(),
            rules: rules.iter().map(rule).collect(),
            ..SecurityGroup::default()
        }
    }

    /// An EC2 of two groups that must not be written to.
    struct TwoGroups;

    #[async_trait]
    impl NetworkApi for TwoGroups {
        async fn subnets(&self, _: &str) -> CloudResult<Vec<Subnet>> {
            Ok(Vec::new())
        }
        async fn route_tables(&self, _: &str) -> CloudResult<Vec<RouteTable>> {
            Ok(Vec::new())
        }
        async fn zone_kinds(&self) -> CloudResult<BTreeMap<String, String>> {
            Ok(BTreeMap::new())
        }
        async fn security_groups(&self, _: &Groups<'_>) -> CloudResult<Vec<SecurityGroup>> {
            Ok(vec![group("sg-1", &[80, 81]), group("sg-2", &[])])
        }
        async fn create_security_group(&self, _: &NewSecurityGroup) -> CloudResult<String> {
            panic!("written")
        }
        async fn delete_security_group(&self, _: &str) -> CloudResult<()> {
            panic!("written")
        }
        async fn authorize(&self, _: &str, _: &Rules) -> CloudResult<()> {
            panic!("written")
        }
        async fn revoke(&self, _: &str, _: &BTreeSet<Rule>) -> CloudResult<()> {
            panic!("written")
        }
        async fn describe_rules(&self, _: &str, _: &Rules) -> CloudResult<()> {
            panic!("written")
        }
        async fn tag_resource(&self, _: &str, _: &Tags) -> CloudResult<()> {
            panic!("written")
        }
    }

    #[tokio::test]
    async fn groups_are_shown_as_they_would_be_and_nothing_is_written() {
        let recorder = Recorder::default();
        let network = RecordedNetwork::new(Arc::new(TwoGroups), recorder.clone());
        let rule = |port| Rule::port("tcp", port, "0.0.0.0/0".parse().unwrap());
        let all = || network.security_groups(&Groups::In("vpc-1"));
        all().await.unwrap();
        let new = NewSecurityGroup {
            name: "new".to_owned(),
            vpc_id: "vpc-1".to_owned(),
            ..NewSecurityGroup::default()
        };
        let made = network.create_security_group(&new).await.unwrap();
        network
            .authorize(&made, &Rules::from([(rule(443), "tls".to_owned())]))
            .await
            .unwrap();
        network
            .authorize("sg-1", &Rules::from([(rule(82), String::new())]))
            .await
            .unwrap();
        network
            .revoke("sg-1", &BTreeSet::from([rule(80), rule(82)]))
            .await
            .unwrap();
        network
            .authorize("sg-1", &Rules::from([(rule(80), String::new())]))
            .await
            .unwrap();
        network.delete_security_group("sg-2").await.unwrap();
        let shown = all().await.unwrap();
        let ports = |group: &SecurityGroup| -> Vec<i32> {
            group.rules.keys().filter_map(|rule| rule.from).collect()
        };
        let shown: Vec<_> = shown.iter().map(|g| (g.id.as_str(), ports(g))).collect();
        assert_eq!(shown, [("sg-1", vec![80, 81]), (made.as_str(), vec![443])]);
        let none = network.security_groups(&Groups::Named {
            vpc: "vpc-1",
            name: "x",
        });
        assert!(none.await.unwrap().iter().all(|group| group.id != made));
        let writes = recorder.take_unattributed();
        let actions: Vec<&str> = writes.iter().map(|write| write.action).collect();
        assert_eq!(
            actions,
            [
                "CreateSecurityGroup",
                "AuthorizeSecurityGroupIngress",
                "AuthorizeSecurityGroupIngress",
                "RevokeSecurityGroupIngress",
                "AuthorizeSecurityGroupIngress",
                "DeleteSecurityGroup"
            ]
        );
        assert_eq!(writes[1].details, ["rule: tcp 443 from 0.0.0.0/0 (tls)"]);
        assert_eq!(writes[2].object, "security group sg-1 (name of sg-1)");
    }
}
