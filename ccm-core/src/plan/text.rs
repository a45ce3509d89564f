//! A plan for people.

use std::fmt::{self, Write as _};

use super::{ObjectPlan, Report, Verdict};
use crate::cloud::RecordedWrite;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for service in &self.services {
            object(f, "Service", service)?;
        }
        for node in self.nodes.values().filter(|node| node.is_worth_telling()) {
            object(f, "Node", node)?;
        }
        if !self.cloud.is_empty() {
            f.write_str("Routes and others\n")?;
            writes(f, "cloud", &self.cloud)?;
            f.write_char('\n')?;
        }
        for left in &self.not_planned {
            writeln!(f, "Not planned: {}: {}.", left.controller, left.reason)?;
        }
        self.summary(f)
    }
}

impl Report {
    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let looked_at = format!(
            "{} and {} were looked at",
            counted(self.looked_at.services, "Service"),
            counted(self.looked_at.nodes, "Node")
        );
        if self.verdict() == Verdict::Nothing {
            return writeln!(f, "Nothing to change. {looked_at}.");
        }
        let services = self.services.iter().filter(|s| s.is_something()).count();
        let nodes = self.nodes.values().filter(|n| n.is_something()).count();
        write!(
            f,
            "To change: {} in the cloud and {} at the API server, for {} and {}.",
            counted(self.cloud_changes(), "change"),
            counted(self.api_changes(), "change"),
            counted(services, "Service"),
            counted(nodes, "Node"),
        )?;
        if self.problems() > 0 {
            write!(
                f,
                " {} cannot be served.",
                counted(self.problems(), "object")
            )?;
        }
        writeln!(f, " {looked_at}.")?;
        if self.verdict() == Verdict::Incomplete {
            f.write_str("The plan is not complete: not everything could be read.\n")?;
        }
        Ok(())
    }
}

fn object(f: &mut fmt::Formatter<'_>, kind: &str, plan: &ObjectPlan) -> fmt::Result {
    write!(f, "{kind} {}", plan.name)?;
    if !plan.intent.is_empty() {
        write!(f, ": {}", plan.intent)?;
    }
    f.write_char('\n')?;
    writes(f, "cloud", &plan.cloud)?;
    writes(f, "api", &plan.api)?;
    for note in &plan.notes {
        writeln!(f, "  note   {note}")?;
    }
    if let Some(problem) = &plan.problem {
        writeln!(f, "  error  {} ({})", problem.message, problem.class)?;
    }
    f.write_char('\n')
}

fn writes(f: &mut fmt::Formatter<'_>, side: &str, writes: &[RecordedWrite]) -> fmt::Result {
    for write in writes {
        writeln!(f, "  {side:<5}  {}  {}", write.action, write.object)?;
        for detail in &write.details {
            writeln!(f, "           {detail}")?;
        }
    }
    Ok(())
}

/// `1 Node`, `2 Nodes`.
fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cloud::CloudError, plan::Problem};

    #[test]
    fn the_text_tells_what_would_be_done_to_each_object() {
        let mut report = Report::default();
        report.looked_at.services = 2;
        report.looked_at.nodes = 1;
        assert_eq!(
            report.to_string(),
            "Nothing to change. 2 Services and 1 Node were looked at.\n"
        );
        let mut service = ObjectPlan::new("shop/web");
        service.intent = "its load balancer is made or changed";
        let write = RecordedWrite::new("CreateLoadBalancer", "load balancer a1");
        service.cloud.push(write.with("scheme: internal"));
        report.services.push(service);
        report.node("a").problem = Some(Problem::from(&CloudError::invalid("no address")));
        assert_eq!(
            report.to_string(),
            "Service shop/web: its load balancer is made or changed\n  \
             cloud  CreateLoadBalancer  load balancer a1\n           scheme: internal\n\n\
             Node a\n  error  no address (invalid)\n\n\
             To change: 1 change in the cloud and 0 changes at the API server, for 1 Service and 1 \
             Node. 1 object cannot be served. 2 Services and 1 Node were looked at.\n"
        );
    }
}
