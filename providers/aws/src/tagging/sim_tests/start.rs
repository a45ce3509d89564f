//! Whether the controller runs, and what ends the process.

use super::world::{FLAGS, World, seconds};

/// REQ-AWS-TC-12
#[tokio::test(start_paused = true)]
async fn flags_that_do_not_fit_end_the_process() {
    for (flags, want) in [
        (
            &["--controllers=*,tagging", "--resources=instance"][..],
            "--tags must not be empty and must be a form of key=value",
        ),
        (
            &["--controllers=tagging", "--tags=a=1", "--resources=foo"],
            "foo is not a supported resource",
        ),
    ] {
        let mut world = World::new(1);
        world.start(flags);
        let error = world.ended().await;
        assert!(error.is_fatal());
        let want = format!("Tagging controller inputs are not properly set: {want}");
        assert!(error.to_string().contains(&want), "{error}");
    }
}

/// REQ-AWS-TC-13, REQ-AWS-TC-17
#[tokio::test(start_paused = true)]
async fn without_its_name_the_controller_does_not_run_whatever_its_flags_say() {
    for flags in [
        &["--tags=key1=value1", "--resources=instance"][..],
        &["--resources=foo", "--tagging-controller-rate-limit=-1"],
        &["--controllers=*,-tagging"],
    ] {
        let mut world = World::new(1);
        world.join(0);
        world.start(flags);
        seconds(30).await;
        assert_eq!(world.calls("CreateTags").len(), 0);
        assert!(!world.series().contains("name=\"tagging\"} 1"));
        world.end().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn beside_the_others_it_runs_when_it_is_named() {
    let mut world = World::new(1);
    world.join(0);
    world.start(&["--controllers=*,tagging", FLAGS[1], FLAGS[2]]);
    seconds(30).await;
    let series = world.series();
    for name in ["cloud-node", "service", "tagging"] {
        let running = format!(
            "running_managed_controllers{{manager=\"cloud-controller-manager\",name=\"{name}\"}} 1"
        );
        assert!(series.contains(&running), "{series}");
    }
    assert!(world.tag(0, "key1").is_some());
    world.end().await.unwrap();
}
