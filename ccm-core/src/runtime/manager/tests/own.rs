//! Controllers that only the provider has.

use super::*;
use crate::{
    cloud::{Own, OwnContext, OwnController, OwnRule, OwnRun},
    config::{Flag, Kind, LowArgs},
    runtime::{Part, RbacOptions, permissions, rbac_manifest, rbac_reference},
};

const PAINT: ControllerName = ControllerName::own("paint-controller", "paint");
const PAINTER: OwnController = OwnController {
    name: PAINT,
    account: "painter",
    rules: &[OwnRule {
        resource: "nodes",
        verbs: &["patch"],
        why: "the colour",
    }],
};
const FLAGS: &[Flag] = &[Flag::of_provider(
    "Paint",
    Kind::Text,
    "colour",
    "white",
    "The colour of Nodes.",
)];

/// A cloud that paints Nodes.
#[derive(Clone, Default)]
struct Painter {
    off: bool,
    colours: Arc<Mutex<Vec<String>>>,
    at_work: Arc<AtomicBool>,
}

impl Cloud for Painter {
    fn name(&self) -> &'static str {
        "painter"
    }

    fn off_by_default(&self) -> &'static [ControllerName] {
        if self.off { &[PAINT] } else { &[] }
    }

    fn own_controller(&self, name: ControllerName, own: &OwnContext<'_>) -> Result<OwnRun, String> {
        assert_eq!(name, PAINT);
        let colour = own.flags.text("colour").to_owned();
        if colour == "none" {
            return Err("--colour must be a colour".to_owned());
        }
        self.colours.lock().unwrap().push(colour);
        let at_work = Arc::clone(&self.at_work);
        Ok(Box::new(move |stop| {
            Box::pin(async move {
                at_work.store(true, Ordering::SeqCst);
                stop.cancelled().await;
                at_work.store(false, Ordering::SeqCst);
            })
        }))
    }
}

fn clouds(painter: &Painter) -> Registry {
    let cloud = painter.clone();
    let build = move |_| {
        let cloud: Arc<dyn Cloud> = Arc::new(cloud.clone());
        Box::pin(async move { Ok(cloud) }) as futures::future::BoxFuture<'static, _>
    };
    let own = Own {
        flags: FLAGS,
        controllers: &[PAINTER],
    };
    let painter = Factory::new("painter", Arc::new(build)).with_own(own);
    Registry::new(vec![painter, Fake::complete().factory()]).unwrap()
}

fn start_painter(painter: &Painter, flags: &[&str]) -> Running {
    let clouds = clouds(painter);
    let fixed = [
        "--cloud-provider=painter",
        "--secure-port=0",
        "--leader-elect=false",
    ];
    let low = LowArgs::read_for(fixed.iter().chain(flags).copied(), &clouds);
    let settings = Settings::from_args(&low).unwrap();
    run(settings, clouds, Api::default().client())
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_the_provider_runs_beside_the_others_with_its_flags() {
    for (off, flags, want) in [
        (false, &["--colour=red"][..], Some("red")),
        (false, &["--controllers=paint"], Some("white")),
        (false, &["--controllers=*,-paint-controller"], None),
        (true, &[], None),
        (
            true,
            &["--controllers=*,paint", "--colour=red"],
            Some("red"),
        ),
    ] {
        let painter = Painter {
            off,
            ..Painter::default()
        };
        let running = start_painter(&painter, flags);
        running.ready_within(Duration::from_secs(10)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let made = painter.colours.lock().unwrap().first().cloned();
        assert_eq!(made.as_deref(), want, "{flags:?}");
        let named = running.controllers().contains(&"paint".to_owned());
        assert_eq!(named, want.is_some(), "{flags:?}");
        assert_eq!(painter.at_work.load(Ordering::SeqCst), want.is_some());
        let registry = running.registry.clone();
        running.stop().await.unwrap();
        assert!(!painter.at_work.load(Ordering::SeqCst));
        let gauge = prometheus::TextEncoder::new().encode_to_string(&registry.gather());
        assert!(!gauge.unwrap().contains("name=\"paint\"} 1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_refuses_its_flags_ends_the_process() {
    let painter = Painter::default();
    let error = start_painter(&painter, &["--colour=none"]).error().await;
    assert!(error.is_fatal());
    let want = "error running controllers: --colour must be a colour";
    assert_eq!(error.to_string(), want);
}

#[test]
fn flags_and_controllers_are_those_of_the_selected_provider() {
    let clouds = clouds(&Painter::default());
    let read = |args: &[&str]| {
        let low = LowArgs::read_for(args.iter().copied(), &clouds);
        Settings::from_args(&low).map_err(|errors| errors.to_string())
    };
    let settings = read(&["--cloud-provider=fake"]).unwrap();
    assert!(!settings.controllers.contains(&PAINT));
    assert_eq!(settings.own_flags.text("colour"), "", "not its flag");
    let error = read(&["--cloud-provider=fake", "--colour=red"]).unwrap_err();
    let want = "--colour is a flag of --cloud-provider=painter; leave it out";
    assert_eq!(error, want);
    let settings = read(&["--cloud-provider=painter", "--colour", "red"]).unwrap();
    assert!(settings.controllers.contains(&PAINT));
    assert_eq!(settings.own_flags.text("colour"), "red");
    let low = LowArgs::read_for(["--colour=red"], &clouds);
    assert!(low.effective().any(|flag| flag == ("colour", "red")));
    let error = LowArgs::parse(["--colour=red"]).unwrap_err();
    assert!(error.to_string().contains("unknown flag: --colour"));
    let near = read(&["--cloud-provider=painter", "--color=red"]).unwrap_err();
    assert!(near.contains("did you mean --colour?"), "{near}");
}

#[test]
fn help_and_reference_name_the_provider() {
    let clouds = clouds(&Painter::default());
    let help = crate::config::render_help("ccm", &clouds);
    let title = "\nPaint flags, only with --cloud-provider=painter:\n\n      --colour string\n";
    assert!(help.contains(title), "{help}");
    let page = crate::config::render_reference(&clouds);
    let title = "\n## Paint\n\nOnly with `--cloud-provider=painter`.\n\n| Flag |";
    assert!(page.contains(title), "{page}");
    assert!(page.contains("| `--colour` | string | `white` | The colour of Nodes. |"));
}

#[test]
fn permissions_of_a_controller_of_the_provider_are_asked_for_when_it_runs() {
    let mut options = RbacOptions::with_own(vec![PAINTER]);
    options.service_account_credentials = true;
    let of = |options: &RbacOptions| {
        let all = permissions(options).into_iter();
        all.filter(|permission| permission.part == Part::Controller(PAINT))
            .count()
    };
    assert_eq!(of(&options), 1);
    assert!(rbac_manifest(&options).contains("name: \"cloud-controller-manager:painter\""));
    options.controllers.remove(&PAINT);
    assert_eq!(of(&options), 0);
    assert!(!rbac_manifest(&options).contains("painter"));
    let row = "| paint-controller | `painter` | core | `nodes` | patch | cluster | the colour |\n";
    assert!(rbac_reference(&[PAINTER]).contains(row));
}
