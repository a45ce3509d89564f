//! The manager dies before and after every API write and every cloud call of every canonical
//! scenario; its successor ends in the desired state, and no rule is violated on the way.

use ccm_simulation::{crash, scenarios, world::Plant};

/// CASE-LEAD-01, CASE-LB-03, CASE-LB-08
#[test]
fn every_crash_point_of_every_canonical_scenario_heals() {
    let (mut bad, mut all) = (Vec::new(), 0);
    for scenario in scenarios::all() {
        let (count, failed) = crash::failures(&scenario.plan, &Plant::none())
            .unwrap_or_else(|error| panic!("{}: {error:#}", scenario.name));
        println!("{}: {count} crash points", scenario.name);
        all += count;
        for (point, report) in failed {
            let violation = report.violation.unwrap();
            bad.push(format!(
                "{} {point:?}: {violation}\n{}",
                scenario.name, report.trace
            ));
        }
    }
    assert!(
        bad.is_empty(),
        "{}\n{} of {all} crash points fail",
        bad.join("\n"),
        bad.len()
    );
}
