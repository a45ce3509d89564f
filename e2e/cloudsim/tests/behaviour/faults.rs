use std::time::Duration;

use ccm_cloudsim::{ConnectionClosed, Fault};
use tokio::time::Instant;

use crate::client::Client;

const EC2: &str = "2016-11-15";

#[tokio::test]
async fn a_fault_fails_the_next_calls_and_changes_nothing() {
    let client = Client::new();
    client
        .sim
        .faults()
        .next("CreateVpc", 2, Fault::request_limit_exceeded())
        .unwrap();
    let create = async || {
        client
            .ec2("CreateVpc", &[("CidrBlock", "10.0.0.0/16")])
            .await
    };
    for _ in 0..2 {
        let reply = create().await;
        assert_eq!(
            (reply.status, reply.one("Code").as_str()),
            (503, "RequestLimitExceeded")
        );
    }
    assert!(client.sim.aws().snapshot().vpcs.is_empty());
    assert_eq!(create().await.status, 200);
    client
        .sim
        .faults()
        .always("elbv2:*", Fault::unauthorized_operation())
        .unwrap();
    assert_eq!(
        client.elb_error("DescribeLoadBalancers", &[]).await,
        "UnauthorizedOperation"
    );
    client.sim.faults().clear("elbv2:*");
    client.elb("DescribeLoadBalancers", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_commit_with_a_lost_answer_takes_effect() {
    let client = Client::new();
    let vpc = [("CidrBlock", "10.0.0.0/16")];
    client
        .sim
        .faults()
        .next("CreateVpc", 1, Fault::commit_then_close())
        .unwrap();
    assert_eq!(
        client.send(EC2, "CreateVpc", &vpc).await.err(),
        Some(ConnectionClosed)
    );
    assert_eq!(client.sim.aws().snapshot().vpcs.len(), 1);
    let late = Fault::CommitThenTimeout {
        gateway_timeout_after_ms: Some(30_000),
    };
    client.sim.faults().next("CreateVpc", 1, late).unwrap();
    let start = Instant::now();
    assert_eq!(client.ec2("CreateVpc", &vpc).await.status, 504);
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert_eq!(client.sim.aws().snapshot().vpcs.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn dropped_and_hanging_connections_change_nothing() {
    let client = Client::new();
    let vpc = [("CidrBlock", "10.0.0.0/16")];
    client
        .sim
        .faults()
        .next("CreateVpc", 1, Fault::DropConnection)
        .unwrap();
    assert!(client.send(EC2, "CreateVpc", &vpc).await.is_err());
    client
        .sim
        .faults()
        .next("CreateVpc", 1, Fault::Hang { millis: 5_000 })
        .unwrap();
    let start = Instant::now();
    assert!(client.send(EC2, "CreateVpc", &vpc).await.is_err());
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert!(client.sim.aws().snapshot().vpcs.is_empty());
    let log = client.sim.calls().calls_since(client.sim.calls().start());
    assert_eq!(log[0].error.as_deref(), Some("connection closed"));
    assert_eq!(log[0].status, None);
}

#[tokio::test]
async fn bodies_may_be_cut_or_hold_an_error_in_spite_of_status_200() {
    let client = Client::new();
    client
        .sim
        .faults()
        .next("DescribeVpcs", 1, Fault::MalformedBody)
        .unwrap();
    let cut = client.ec2("DescribeVpcs", &[]).await;
    assert!(
        cut.status == 200 && !cut.body.contains("</DescribeVpcsResponse>"),
        "{}",
        cut.body
    );
    let fault = Fault::OkWithErrorDocument {
        code: "InternalError".to_owned(),
        message: "sorry".to_owned(),
    };
    client.sim.faults().next("DescribeVpcs", 1, fault).unwrap();
    let wrong = client.ec2("DescribeVpcs", &[]).await;
    assert_eq!(
        (wrong.status, wrong.one("Code").as_str()),
        (200, "InternalError")
    );
}

#[tokio::test]
async fn a_page_of_a_listing_may_be_missing() {
    let (client, cluster) = Client::with_cluster(9);
    client
        .sim
        .aws()
        .configure(|settings| settings.page_cap = Some(3));
    let listing = async || {
        let (mut ids, mut token) = (Vec::new(), String::new());
        loop {
            let page = client
                .ec2("DescribeInstances", &[("NextToken", &token)])
                .await;
            ids.extend(page.all("instanceId"));
            match page.all("nextToken").pop() {
                Some(next) => token = next,
                None => return ids.len(),
            }
        }
    };
    assert_eq!(listing().await, cluster.instance_ids.len());
    client
        .sim
        .faults()
        .always("DescribeInstances", Fault::DropPage { page: 2 })
        .unwrap();
    assert_eq!(listing().await, 6);
    client.sim.faults().clear_all();
    client
        .sim
        .faults()
        .always("DescribeInstances", Fault::LoseNextToken { page: 2 })
        .unwrap();
    assert_eq!(listing().await, 6);
    client.sim.faults().clear_all();
    client
        .sim
        .faults()
        .nth("DescribeInstances", 2, Fault::internal_error())
        .unwrap();
    assert_eq!(client.ec2("DescribeInstances", &[]).await.status, 200);
    assert_eq!(client.ec2("DescribeInstances", &[]).await.status, 500);
}

#[tokio::test(start_paused = true)]
async fn latency_and_throttling_run_on_virtual_time() {
    let client = Client::new();
    client
        .sim
        .latency()
        .set("DescribeVpcs", Duration::from_millis(250));
    let start = Instant::now();
    client.ec2("DescribeVpcs", &[]).await;
    client.ec2("DescribeSubnets", &[]).await;
    assert_eq!(start.elapsed(), Duration::from_millis(250));
    client.sim.throttles().set("DescribeSubnets", 1.0, 2.0);
    client.sim.throttles().set("DescribeTags", 1.0, 0.0);
    let status = async || client.ec2("DescribeSubnets", &[]).await.status;
    assert_eq!(
        [status().await, status().await, status().await],
        [200, 200, 503]
    );
    assert_eq!(
        client.ec2_error("DescribeSubnets", &[]).await,
        "RequestLimitExceeded"
    );
    assert_eq!(client.elb_error("DescribeTags", &[]).await, "Throttling");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!([status().await, status().await], [200, 503]);
    client.sim.throttles().clear();
    assert_eq!(status().await, 200);
}

#[tokio::test(start_paused = true)]
async fn the_call_log_tells_who_called_what_and_when() {
    let (client, cluster) = Client::with_cluster(1);
    client.ec2("DescribeVpcs", &[]).await;
    let calls = client.sim.calls();
    let mark = calls.mark();
    tokio::time::advance(Duration::from_secs(5)).await;
    let tag = [
        ("ResourceId.1", cluster.vpc_id.as_str()),
        ("Tag.1.Key", "a"),
        ("Tag.1.Value", "b c"),
    ];
    client.ec2("CreateTags", &tag).await;
    client.ec2("DescribeVpcs", &[("VpcId.1", "vpc-0123")]).await;
    client.ec2("DescribeVpcs", &[]).await;
    let counts = calls.counts_since(mark);
    assert_eq!(
        counts.into_iter().collect::<Vec<_>>(),
        [("CreateTags".to_owned(), 1), ("DescribeVpcs".to_owned(), 2)]
    );
    let writes = calls.writes_since(mark);
    assert_eq!(writes.len(), 1);
    assert_eq!(
        (
            writes[0].service,
            writes[0].status,
            writes[0].user_agent.as_str()
        ),
        ("ec2", Some(200), "test/1")
    );
    assert_eq!(writes[0].params["Tag.1.Value"], "b c");
    assert_eq!(writes[0].at.to_string(), "2026-01-01T00:00:05Z");
    assert_eq!(
        calls.calls_since(mark)[1].error.as_deref(),
        Some("InvalidVpcID.NotFound")
    );
}
