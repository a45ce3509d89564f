//! Which addresses a Node shows, in which order, and when they are written.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Result;
use ccm_cloudsim::{
    Fault,
    aws::{InstanceState, RunInstance},
};
use ccm_e2e_tests::{Bench, node, tainted};
use ccm_testkit::eventually;
use serde_json::json;

use super::{
    CLOUD_TAINT, FAST, NODE_IP, SOON, addresses, asked, count_events, done, launch, launch_with,
    lookups_of, provider_id_of, register_as, taints,
};

const fn v4(d: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 20, 0, d)
}

/// A registered Node whose kubelet was started with `--node-ip`.
fn with_node_ip(name: &str, ips: &str) -> k8s_openapi::api::core::v1::Node {
    node(json!({
        "metadata": { "name": name, "annotations": { NODE_IP: ips } },
        "spec": { "taints": [{ "key": CLOUD_TAINT, "value": "true", "effect": "NoSchedule" }] },
    }))
}

/// A cloud-config of this bench that also asks for IPv6 addresses. Returns the flag.
fn dual_stack(bench: &Bench) -> Result<String> {
    let plain = std::fs::read_to_string(bench.manager_options(&[]).cloud_config)?;
    let families = "[Global]\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv6\n";
    let path = bench.path("dual-stack.conf");
    std::fs::write(&path, plain.replacen("[Global]\n", families, 1))?;
    Ok(format!("--cloud-config={}", path.display()))
}

/// CASE-NODE-03: REQ-NODE-17
#[tokio::test]
async fn a_second_interface_never_comes_first() -> Result<()> {
    let mut bench = Bench::new(0).await?;
    let machine = launch_with(&bench, &[v4(11), v4(12)])?;
    let aws = bench.cloud.sim.aws();
    aws.set_enis_order_random(true);
    bench
        .start_manager(&[FAST[0], "--node-status-update-frequency=100ms"])
        .await?;
    let name = bench.join_all().await?.pop();
    assert_eq!(name, None, "the bench has no machines of its own");
    let name = bench.dns_name(&machine)?;
    bench.create_node(&tainted(&name), "True").await?;
    let mut want = vec![
        "InternalIP 10.20.0.11".to_owned(),
        "InternalIP 10.20.0.12".to_owned(),
        format!("InternalDNS {name}"),
        format!("Hostname {name}"),
    ];
    bench
        .node_until(&name, "the addresses of the first interface", |node| {
            addresses(node) == want
        })
        .await;
    let eni = bench
        .cloud
        .sim
        .aws()
        .attach_eni(&machine, 1, &[Ipv4Addr::new(10, 20, 16, 5)]);
    done(eni);
    want.insert(2, "InternalIP 10.20.16.5".to_owned());
    bench
        .node_until(
            &name,
            "the second interface comes after the first",
            |node| addresses(node) == want,
        )
        .await;
    let audit = bench.api.audit_mark().await?;
    asked(&bench, 20).await;
    assert_eq!(addresses(&bench.nodes().get(&name).await?), want);
    let requests = bench.api.requests_since(audit).await?;
    let patches: Vec<_> = requests.iter().filter(|r| r.is_write()).collect();
    assert!(patches.is_empty(), "{patches:?}");
    Ok(())
}

/// CASE-NODE-04: REQ-NODE-11, REQ-NODE-17
#[tokio::test]
async fn both_families_of_a_requested_node_ip_come_first_in_its_order() -> Result<()> {
    let mut bench = Bench::new(0).await?;
    let machine = launch_with(&bench, &[v4(40), v4(44)])?;
    let aws = bench.cloud.sim.aws();
    let ipv6: Ipv6Addr = "2001:db8:4::7".parse()?;
    done(aws.add_addresses(&machine, &[], &[ipv6]));
    let second = aws.attach_eni(&machine, 1, &[Ipv4Addr::new(10, 20, 16, 44)]);
    done(second);
    let config = dual_stack(&bench)?;
    bench
        .start_manager(&[FAST[0], "--node-status-update-frequency=500ms", &config])
        .await?;
    let name = bench.dns_name(&machine)?;
    let node = with_node_ip(&name, "2001:db8:4::7,10.20.0.44");
    bench.create_node(&node, "True").await?;
    let want = [
        "InternalIP 2001:db8:4::7".to_owned(),
        "InternalIP 10.20.0.44".to_owned(),
        format!("InternalDNS {name}"),
        format!("Hostname {name}"),
    ];
    bench
        .node_until(&name, "the requested addresses and the names", |node| {
            taints(node).is_empty() && addresses(node) == want
        })
        .await;
    // Two addresses of one type are no reason to write again and again.
    let audit = bench.api.audit_mark().await?;
    asked(&bench, 4).await;
    let requests = bench.api.requests_since(audit).await?;
    assert_eq!(requests.iter().filter(|r| r.is_write()).count(), 0);
    Ok(())
}

/// CASE-NODE-05: REQ-NODE-09, REQ-NODE-10, REQ-NODE-11, REQ-NODE-23
#[tokio::test]
async fn a_requested_node_ip_need_not_be_the_first_but_must_be_there() -> Result<()> {
    let mut bench = Bench::new(1).await?;
    let good = launch_with(&bench, &[v4(5), v4(51)])?;
    let missing = launch_with(&bench, &[v4(6), v4(52)])?;
    let spaced = launch_with(&bench, &[v4(7), v4(53)])?;
    bench.start_manager(&FAST).await?;
    let name = |machine: &str| bench.dns_name(machine);
    let (good, missing, spaced) = (name(&good)?, name(&missing)?, name(&spaced)?);
    let mark = bench.cloud.sim.calls().mark();
    for (name, ips) in [
        (&missing, "10.20.0.99"),
        (&spaced, "10.20.0.53, 2001:db8::1"),
        (&good, "10.20.0.51"),
    ] {
        bench.create_node(&with_node_ip(name, ips), "True").await?;
    }
    let others = bench.join_all().await?;
    bench
        .node_until(&good, "the requested address is the only one", |node| {
            let all = addresses(node);
            let internal: Vec<_> = all.iter().filter(|a| a.starts_with("InternalIP")).collect();
            taints(node).is_empty() && internal == ["InternalIP 10.20.0.51"]
        })
        .await;
    bench.initialised(&others[0]).await;

    let message = bench.event(&missing, "FailedToInitialise").await;
    for part in ["10.20.0.99", "10.20.0.6", "10.20.0.52", NODE_IP] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    let message = bench.event(&spaced, "FailedToInitialise").await;
    assert!(message.contains("10.20.0.53, 2001:db8::1"), "{message}");
    for name in [&missing, &spaced] {
        assert_eq!(taints(&bench.nodes().get(name).await?), [CLOUD_TAINT]);
        let tries = lookups_of(&bench, mark, name).len();
        let warned = count_events(&bench, name, "FailedToInitialise").await?;
        // One Warning a try at most, and tries that get rarer.
        assert!((1..=20).contains(&tries), "{tries}");
        assert!(usize::try_from(warned)? <= tries, "{warned} of {tries}");
    }
    // A corrected annotation is enough.
    let patch = json!({ "metadata": { "annotations": { NODE_IP: "10.20.0.52" } } });
    let patch = kube::api::Patch::Merge(&patch);
    bench
        .nodes()
        .patch(&missing, &Default::default(), &patch)
        .await?;
    bench.initialised(&missing).await;
    Ok(())
}

/// CASE-NODE-06: REQ-NODE-12, REQ-NODE-13, REQ-NODE-16
#[tokio::test]
async fn the_stored_list_is_the_clouds_list_after_every_change() -> Result<()> {
    let mut bench = Bench::new(0).await?;
    let machine = launch(
        &bench,
        RunInstance {
            public_ip: true,
            ..RunInstance::default()
        },
    )?;
    let config = dual_stack(&bench)?;
    bench
        .start_manager(&[FAST[0], "--node-status-update-frequency=200ms", &config])
        .await?;
    let id = provider_id_of(&bench, &machine)?;
    register_as(&bench, "heron-1", &id, "True").await?;
    let (a, b, c, d) = (v4(101), v4(102), v4(103), v4(104));
    let far = Ipv4Addr::new(10, 20, 16, 9);
    let six = |n: u16| Ipv6Addr::new(0x2001, 0xdb8, 4, 0, 0, 0, 0, n);
    // The addresses of each interface, by device index, and whether the machine has a public one.
    let steps = [
        (vec![(vec![a, b], vec![])], false),
        (vec![(vec![a], vec![])], false),
        (vec![(vec![c, d], vec![])], false),
        (vec![(vec![d, c], vec![])], false),
        (
            vec![(vec![c], vec![six(1)]), (vec![far], vec![six(2)])],
            false,
        ),
        (
            vec![(vec![d], vec![six(3)]), (vec![far], vec![six(1)])],
            false,
        ),
        (vec![(vec![c], vec![])], true),
    ];
    for (interfaces, public) in steps {
        let audit = bench.api.audit_mark().await?;
        let want = readdress(&bench, &machine, &interfaces, public)?;
        eventually("the Node has the cloud's list", SOON, || async {
            let node = bench.nodes().get("heron-1").await;
            let have = addresses(&node.map_err(|e| e.to_string())?);
            (have == want)
                .then_some(())
                .ok_or_else(|| format!("{have:?}, not {want:?}"))
        })
        .await;
        asked(&bench, 2).await;
        let requests = bench.api.requests_since(audit).await?;
        let refused: Vec<_> = requests.iter().filter(|r| r.code >= 400).collect();
        assert!(refused.is_empty(), "{refused:?}");
        let writes = requests.iter().filter(|r| r.is_write()).count();
        assert_eq!(writes, 1, "{want:?}: {requests:?}");
    }
    Ok(())
}

/// Gives the machine other interfaces, out of sight of the manager. Returns what its Node must show.
fn readdress(
    bench: &Bench,
    machine: &str,
    interfaces: &[(Vec<Ipv4Addr>, Vec<Ipv6Addr>)],
    public: bool,
) -> Result<Vec<String>> {
    let aws = bench.cloud.sim.aws();
    let faults = bench.cloud.sim.faults();
    let away = Fault::error(403, "UnauthorizedOperation", "Not while this changes.");
    done(faults.always("DescribeInstances", away));
    // A terminated machine has lost all interfaces; a stopped one has no public address.
    done(aws.set_state(machine, InstanceState::Terminated));
    done(aws.set_state(machine, InstanceState::Stopped));
    // The last one first: addresses are added to the interface of the lowest index.
    for (index, (ipv4, ipv6)) in interfaces.iter().enumerate().rev() {
        done(aws.attach_eni(machine, u32::try_from(index)?, ipv4));
        done(aws.add_addresses(machine, &[], ipv6));
    }
    let mut want: Vec<String> = Vec::new();
    let fours = interfaces.iter().flat_map(|(ipv4, _)| ipv4);
    want.extend(fours.map(|ip| format!("InternalIP {ip}")));
    if public {
        done(aws.set_state(machine, InstanceState::Running));
        let ip = aws.instance(machine).and_then(|machine| machine.public_ip);
        let ip = ip.map(|ip| ip.to_string()).unwrap_or_default();
        want.push(format!("ExternalIP {ip}"));
        let dashed = ip.replace('.', "-");
        want.push(format!(
            "ExternalDNS ec2-{dashed}.us-west-2.compute.amazonaws.com"
        ));
    }
    let sixes = interfaces.iter().filter_map(|(_, ipv6)| ipv6.first());
    want.extend(sixes.map(|ip| format!("InternalIP {ip}")));
    faults.clear("DescribeInstances");
    Ok(want)
}
