//! Every change of the cloud.

use super::{Judge, Rule};
use crate::cloud::{Model, model::FOREIGN};

impl Judge {
    /// A manager changed the cloud, or tried to. `late`: its client was told long ago that the call
    /// failed. What was right then may be wrong by now, and no client can know: only what is never
    /// right is a violation.
    pub fn cloud_written(&self, what: &str, before: &Model, late: bool) {
        let after = self.cloud.now();
        if before.foreign() != after.foreign() {
            self.violated(Rule::ForeignCloud, what);
        }
        for (key, part) in &after.parts {
            let is_new = !before.parts.contains_key(key);
            if is_new && part.owner != FOREIGN {
                self.part_made(&part.owner, what, late);
            }
        }
        for (name, route) in &before.routes {
            if !late && !after.routes.contains_key(name) {
                self.route_deleted(route);
            }
        }
        self.owners(&after, what);
    }
}
