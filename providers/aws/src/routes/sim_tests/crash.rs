//! A pass that ends after any call.

use std::collections::BTreeMap;

use ccm_cloudsim::control::Fault;

use super::{
    bench::Bench,
    world::{World, seconds},
};

/// More calls than any pass below makes.
const CALLS: u64 = 40;

/// A table with a black hole, a former machine's route and nothing for one Node; three machines,
/// one of them with two interfaces.
async fn world() -> World {
    let bench = Bench::new(4).await;
    bench.put("10.64.0.0/24", bench.machine(3));
    bench.sim.aws().terminate(bench.machine(3)).unwrap();
    bench.put("10.64.1.0/24", bench.machine(2));
    let aws = bench.sim.aws();
    aws.attach_eni(bench.machine(0), 1, &[]).unwrap();
    let world = World::new(bench);
    for (at, ranges) in [
        (0, ["10.64.0.0/24", "fd00:10:0:1::/64"]),
        (1, ["10.64.1.0/24", "fd00:10:0:2::/64"]),
    ] {
        let machine = world.bench.machine(at).to_owned();
        world.join(&format!("n{at}"), &machine, &ranges);
    }
    world
}

fn state(world: &World) -> (BTreeMap<String, String>, Vec<bool>, Vec<String>) {
    (
        world.bench.table(),
        (0..3).map(|at| world.bench.checks(at)).collect(),
        (0..2).map(|at| world.network(&format!("n{at}"))).collect(),
    )
}

/// Every prefix of a pass, continued by a new process, ends as an undisturbed one.
#[tokio::test(start_paused = true)]
async fn a_pass_cut_off_at_any_call_is_continued_to_the_same_end() {
    let mut undisturbed = world().await;
    undisturbed.start().await;
    seconds(25).await;
    undisturbed.stop().await;
    // Ids differ from run to run only by what was launched: the runs are alike.
    let want = state(&undisturbed);
    assert_eq!(want.0.len(), 4);
    assert_eq!(want.1, [false, false, true]);
    assert_eq!(want.2, ["False/RouteCreated"; 2]);
    for fault in [Fault::DropConnection, Fault::commit_then_close()] {
        let mut ended = false;
        for n in 1..CALLS {
            let mut world = world().await;
            let mark = world.bench.sim.calls().mark();
            let faults = world.bench.sim.faults();
            faults.from_nth("*", n, fault.clone()).unwrap();
            world.start().await;
            seconds(5).await;
            world.stop().await;
            let made = world.bench.sim.calls().calls_since(mark).len();
            world.bench.sim.faults().clear_all();
            world.start().await;
            seconds(25).await;
            assert_eq!(state(&world), want, "call {n}");
            let (_, calls) = world.bench.calls(seconds(10)).await;
            assert_eq!(calls, ["DescribeRouteTables"], "call {n}");
            world.stop().await;
            if u64::try_from(made).unwrap() < n {
                ended = true;
                break;
            }
        }
        assert!(ended, "more calls than expected");
    }
}
