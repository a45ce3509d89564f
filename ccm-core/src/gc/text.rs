//! Leftovers for people.

use std::fmt;

use super::{Fate, Report, Row};
use crate::config::GoDuration;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in &self.rows {
            row(f, found)?;
        }
        if !self.at_home {
            f.write_str(
                "Careful: no Node of the API server is a machine of this cluster in the cloud. If \
                 --kubeconfig is of another cluster, all this has its owner there.\n",
            )?;
        }
        if self.rows.is_empty() {
            return f.write_str("Nothing was left behind.\n");
        }
        let count = |is: fn(&Fate) -> bool| self.rows.iter().filter(|row| is(&row.fate)).count();
        let plural = if self.rows.len() == 1 { "" } else { "s" };
        write!(
            f,
            "{} leftover{plural}: {} to remove, {} removed, {} left",
            self.rows.len(),
            count(|fate| *fate == Fate::Removable),
            count(|fate| *fate == Fate::Removed),
            count(|fate| matches!(fate, Fate::Left(_))),
        )?;
        let failed = count(|fate| matches!(fate, Fate::Failed(_)));
        if failed > 0 {
            write!(f, ", {failed} not removed for an error")?;
        }
        f.write_str(".\n")
    }
}

fn row(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let leftover = &row.leftover;
    let name = match leftover.name.as_str() {
        "" => &leftover.id,
        name => name,
    };
    writeln!(f, "{} {name}", leftover.kind.as_str())?;
    if name != leftover.id {
        writeln!(f, "  id        {}", leftover.id)?;
    }
    if let Some(made_for) = &leftover.made_for {
        writeln!(f, "  made for  {made_for}")?;
    }
    let age = row.age.map_or_else(
        || "unknown".to_owned(),
        |age| GoDuration::from(std::time::Duration::from_secs(age.as_secs())).to_string(),
    );
    writeln!(f, "  age       {age}")?;
    writeln!(f, "  reason    {}", leftover.reason)?;
    for part in &leftover.parts {
        writeln!(f, "  with it   {part}")?;
    }
    match &row.fate {
        Fate::Removable => f.write_str("  fate      --delete would remove it\n")?,
        Fate::Left(why) => writeln!(f, "  fate      left: {why}")?,
        Fate::Removed => f.write_str("  fate      removed\n")?,
        Fate::Failed(why) => writeln!(f, "  fate      not removed: {why}")?,
    }
    f.write_str("\n")
}
