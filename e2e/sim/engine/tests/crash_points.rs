//! The manager dies before and after every API write and every cloud call of every canonical
//! scenario; its successor ends in the desired state, and no rule is violated on the way.

use ccm_simulation::{
    crash,
    report::{Failure, command},
    scenarios,
    world::Plant,
};

/// Failures of one scenario that are shrunk and told with their record; of the others the command.
const TOLD: usize = 3;

/// CASE-LEAD-01, CASE-LB-03, CASE-LB-08
#[test]
fn every_crash_point_of_every_canonical_scenario_heals() {
    let plant = Plant::none();
    let (mut bad, mut all) = (Vec::new(), 0);
    for scenario in scenarios::all() {
        let name = scenario.name;
        let (count, failed) = crash::failures(&scenario.plan, &plant).unwrap_or_else(|error| {
            panic!("{error:#}\nto see it again: cargo xtask sim --scenario {name} --seeds 0")
        });
        println!("{name}: {count} crash points");
        all += count;
        for (index, (point, report)) in failed.iter().enumerate() {
            let plan = crash::plan_at(&scenario.plan, point);
            bad.push(if index < TOLD {
                let failure = Failure::of(name, &plan, &plant, report).unwrap().unwrap();
                format!("{failure}\n  it was {}\n{}", point.op, failure.trace)
            } else {
                command(name, &plan)
            });
        }
    }
    assert!(
        bad.is_empty(),
        "{}\n{} of {all} crash points fail",
        bad.join("\n"),
        bad.len()
    );
}
