use bytes::Bytes;
use ccm_cloudsim::Fault;
use http::Request;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{Client, form};

fn signed(service: &str, version: &str, action: &str) -> Request<Full<Bytes>> {
    let scope = format!(
        "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-west-2/{service}/aws4_request, SignedHeaders=host, Signature=0"
    );
    let body = form(&[("Action", action), ("Version", version)]);
    Request::post("/")
        .header("authorization", scope)
        .body(Full::from(body))
        .unwrap()
}

fn json(method: &str, path: &str, body: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .uri(path)
        .body(Full::from(body.to_owned()))
        .unwrap()
}

#[tokio::test]
async fn the_service_is_told_by_signature_and_version() {
    let client = Client::new();
    let elb = client
        .http(signed(
            "elasticloadbalancing",
            "2015-12-01",
            "DescribeLoadBalancers",
        ))
        .await
        .unwrap();
    assert!(
        elb.body
            .contains("http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/")
    );
    let classic = client
        .http(signed(
            "elasticloadbalancing",
            "2012-06-01",
            "DescribeLoadBalancers",
        ))
        .await
        .unwrap();
    assert!(classic.body.contains("LoadBalancerDescriptions"));
    let classic = client
        .http(signed(
            "elasticloadbalancing",
            "2012-06-01",
            "DescribeAccountLimits",
        ))
        .await
        .unwrap();
    assert_eq!(
        (classic.status, classic.one("Code").as_str()),
        (400, "InvalidAction")
    );
    let wrong = client
        .http(signed("ec2", "2015-12-01", "DescribeLoadBalancers"))
        .await
        .unwrap();
    assert_eq!(
        (wrong.status, wrong.one("Code").as_str()),
        (400, "InvalidAction")
    );
    let sts = client
        .http(signed("sts", "2011-06-15", "GetCallerIdentity"))
        .await
        .unwrap();
    assert_eq!(sts.one("Account"), "123456789012");
    let services: Vec<_> = client
        .sim
        .calls()
        .calls_since(client.sim.calls().start())
        .iter()
        .map(|call| call.service)
        .collect();
    assert_eq!(services, ["elbv2", "elb", "elb", "unknown", "sts"]);
}

#[tokio::test]
async fn the_metadata_service_wants_a_token_and_describes_the_own_instance() {
    let (client, cluster) = Client::with_cluster(1);
    let get = async |path: &str, token: &str| {
        let request = Request::get(path).header("x-aws-ec2-metadata-token", token);
        client
            .http(request.body(Full::default()).unwrap())
            .await
            .unwrap()
    };
    let ask =
        Request::put("/latest/api/token").header("x-aws-ec2-metadata-token-ttl-seconds", "60");
    let answer = client
        .http(ask.body(Full::default()).unwrap())
        .await
        .unwrap();
    let life = &answer.headers["x-aws-ec2-metadata-token-ttl-seconds"];
    assert_eq!(life, "60", "clients insist on it");
    let token = answer.body;
    assert_eq!(
        get("/latest/meta-data/instance-id", &token).await.status,
        404
    );
    client
        .sim
        .aws()
        .set_self_instance(Some(&cluster.instance_ids[0]));
    assert_eq!(
        get("/latest/meta-data/instance-id", &token).await.body,
        cluster.instance_ids[0]
    );
    assert_eq!(
        get("/latest/meta-data/instance-id", "other").await.status,
        401
    );
    let document = get("/latest/dynamic/instance-identity/document", &token)
        .await
        .body;
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["region"], "us-west-2");
    assert_eq!(document["availabilityZone"], "us-west-2a");
    let plain = client
        .http(json("GET", "/latest/meta-data/instance-id", ""))
        .await
        .unwrap();
    assert_eq!(plain.status, 401);
    client
        .sim
        .aws()
        .configure(|settings| settings.imds_token_required = false);
    let plain = client
        .http(json("GET", "/latest/meta-data/instance-id", ""))
        .await
        .unwrap();
    assert_eq!(plain.status, 200);
}

#[tokio::test]
async fn control_endpoints_do_what_the_test_handle_does() {
    let (client, cluster) = Client::with_cluster(1);
    let call = async |method: &str, path: &str, body: &str| {
        let reply = client.http(json(method, path, body)).await.unwrap();
        let value: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
        (reply.status, value)
    };
    let fault = r#"{"action": "DescribeVpcs", "to": 1, "fault": {"kind": "error", "status": 500, "code": "InternalError"}}"#;
    assert_eq!(call("POST", "/_sim/faults", fault).await.0, 200);
    assert_eq!(client.ec2_error("DescribeVpcs", &[]).await, "InternalError");
    client.ec2("DescribeVpcs", &[]).await;
    assert_eq!(
        call("GET", "/_sim/calls", "").await.1,
        serde_json::json!({"DescribeVpcs": 2})
    );
    assert_eq!(call("POST", "/_sim/reset-calls", "").await.0, 200);
    assert_eq!(
        call("GET", "/_sim/calls", "").await.1,
        serde_json::json!({})
    );
    call(
        "POST",
        "/_sim/faults",
        r#"{"action": "*", "fault": {"kind": "drop-connection"}}"#,
    )
    .await;
    assert_eq!(
        call("DELETE", "/_sim/faults", "").await.1,
        serde_json::json!([])
    );
    let id = cluster.instance_ids[0].as_str();
    for (verb, state) in [
        ("stop", "stopped"),
        ("start", "running"),
        ("terminate", "terminated"),
    ] {
        assert_eq!(
            call("POST", &format!("/_sim/instances/{id}/{verb}"), "")
                .await
                .0,
            200
        );
        assert_eq!(
            call("GET", "/_sim/state", "").await.1["aws"]["instances"][id]["state"],
            state
        );
    }
    call("POST", "/_sim/quotas", r#"{"load_balancers": 0}"#).await;
    let quotas = client.sim.aws().quotas();
    assert_eq!(
        (quotas.load_balancers, quotas.rules_per_security_group),
        (0, 60)
    );
    assert_eq!(
        call("POST", "/_sim/instances/i-0aa1/stop", "").await.1["code"],
        "InvalidInstanceID.NotFound"
    );
    assert_eq!(call("GET", "/_sim/nothing", "").await.0, 404);
    assert_eq!(call("POST", "/_sim/faults", "{").await.0, 400);
}

async fn raw(stream: &mut TcpStream, action: &str) -> String {
    let body = form(&[("Action", action), ("Version", "2016-11-15")]);
    let request = format!(
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap_or(0);
        text.extend_from_slice(&buffer[..read]);
        let so_far = String::from_utf8_lossy(&text);
        if read == 0 || so_far.contains("Response>") {
            return so_far.into_owned();
        }
    }
}

#[tokio::test]
async fn over_a_socket_connections_are_kept_dropped_by_faults_and_ended_by_shutdown() {
    let (client, _) = Client::with_cluster(1);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let sim = client.sim.clone();
    let server = tokio::spawn(async move {
        let stopped = async {
            let _ = stopped.await;
        };
        sim.serve(listener, stopped).await
    });
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        let answer = raw(&mut stream, "DescribeVpcs").await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("10.20.0.0/16"),
            "{answer}"
        );
    }
    client
        .sim
        .faults()
        .next("DescribeVpcs", 1, Fault::DropConnection)
        .unwrap();
    assert_eq!(raw(&mut stream, "DescribeVpcs").await, "");
    let mut idle = TcpStream::connect(address).await.unwrap();
    assert!(
        raw(&mut idle, "DescribeVpcs")
            .await
            .starts_with("HTTP/1.1 200")
    );
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
    assert_eq!(idle.read(&mut [0; 16]).await.unwrap(), 0);
}
