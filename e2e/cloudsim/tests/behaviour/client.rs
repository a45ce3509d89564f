//! A client without SDK: form bodies out, XML in.

use bytes::Bytes;
use ccm_cloudsim::{CloudSim, Cluster, ConnectionClosed, Options};
use http::Request;
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

pub struct Client {
    pub sim: CloudSim,
}

pub struct Reply {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: String,
}

impl Reply {
    /// The texts of all elements with this name, in order.
    pub fn all(&self, tag: &str) -> Vec<String> {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let parts = self.body.split(&open).skip(1);
        parts
            .filter_map(|part| part.split_once(&close).map(|(text, _)| text.to_owned()))
            .collect()
    }

    pub fn one(&self, tag: &str) -> String {
        self.all(tag)
            .into_iter()
            .next()
            .unwrap_or_else(|| panic!("no <{tag}> in {}", self.body))
    }
}

pub fn form(pairs: &[(&str, &str)]) -> String {
    let encode = |text: &str| -> String {
        let byte = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        };
        text.bytes().map(byte).collect()
    };
    let pairs = pairs
        .iter()
        .map(|(key, value)| format!("{}={}", encode(key), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

impl Client {
    pub fn new() -> Self {
        Self {
            sim: CloudSim::new(Options::default()),
        }
    }

    /// A client and a cluster `kite` with `n` running nodes.
    pub fn with_cluster(n: usize) -> (Self, Cluster) {
        let client = Self::new();
        let cluster = client.sim.aws().standard_cluster("kite", n).unwrap();
        (client, cluster)
    }

    pub async fn http(&self, request: Request<Full<Bytes>>) -> Result<Reply, ConnectionClosed> {
        let response = self.sim.service().oneshot(request).await?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Ok(Reply {
            status,
            headers,
            body,
        })
    }

    /// An unsigned call; the API is told by its version.
    pub async fn send(
        &self,
        version: &str,
        action: &str,
        pairs: &[(&str, &str)],
    ) -> Result<Reply, ConnectionClosed> {
        let mut all = vec![("Action", action), ("Version", version)];
        all.extend(pairs);
        let request = Request::post("http://aws.example/").header("user-agent", "test/1");
        self.http(request.body(Full::from(form(&all))).unwrap())
            .await
    }

    pub async fn ec2(&self, action: &str, pairs: &[(&str, &str)]) -> Reply {
        self.send("2016-11-15", action, pairs).await.unwrap()
    }

    pub async fn elb(&self, action: &str, pairs: &[(&str, &str)]) -> Reply {
        let reply = self.send("2015-12-01", action, pairs).await.unwrap();
        assert_eq!(reply.status, 200, "{action}: {}", reply.body);
        reply
    }

    /// The error code of a call that must fail.
    pub async fn ec2_error(&self, action: &str, pairs: &[(&str, &str)]) -> String {
        let reply = self.ec2(action, pairs).await;
        assert_ne!(reply.status, 200, "{}", reply.body);
        reply.one("Code")
    }

    pub async fn elb_error(&self, action: &str, pairs: &[(&str, &str)]) -> String {
        let reply = self.send("2015-12-01", action, pairs).await.unwrap();
        assert_ne!(reply.status, 200, "{}", reply.body);
        reply.one("Code")
    }

    /// A call of the API of classic load balancers.
    pub async fn classic(&self, action: &str, pairs: &[(&str, &str)]) -> Reply {
        let reply = self.send("2012-06-01", action, pairs).await.unwrap();
        assert_eq!(reply.status, 200, "{action}: {}", reply.body);
        reply
    }

    /// Error code and HTTP status of a call that must fail.
    pub async fn classic_error(&self, action: &str, pairs: &[(&str, &str)]) -> (String, u16) {
        let reply = self.send("2012-06-01", action, pairs).await.unwrap();
        assert_ne!(reply.status, 200, "{}", reply.body);
        (reply.one("Code"), reply.status)
    }

    pub async fn new_lb(&self, name: &str, subnets: &[String], more: &[(&str, &str)]) -> String {
        let keys: Vec<String> = (1..=subnets.len())
            .map(|n| format!("Subnets.member.{n}"))
            .collect();
        let mut pairs = vec![("Name", name), ("Type", "network")];
        pairs.extend(
            keys.iter()
                .map(String::as_str)
                .zip(subnets.iter().map(String::as_str)),
        );
        pairs.extend(more);
        self.elb("CreateLoadBalancer", &pairs)
            .await
            .one("LoadBalancerArn")
    }

    pub async fn new_group(
        &self,
        name: &str,
        vpc: &str,
        protocol: &str,
        more: &[(&str, &str)],
    ) -> String {
        let mut pairs = vec![
            ("Name", name),
            ("VpcId", vpc),
            ("Protocol", protocol),
            ("Port", "30080"),
        ];
        pairs.extend(more);
        self.elb("CreateTargetGroup", &pairs)
            .await
            .one("TargetGroupArn")
    }

    pub async fn new_listener(&self, lb: &str, group: &str, protocol: &str, port: &str) -> String {
        let pairs = listener(lb, group, protocol, port);
        self.elb("CreateListener", &pairs).await.one("ListenerArn")
    }
}

pub fn listener<'a>(
    lb: &'a str,
    group: &'a str,
    protocol: &'a str,
    port: &'a str,
) -> [(&'a str, &'a str); 5] {
    [
        ("LoadBalancerArn", lb),
        ("Protocol", protocol),
        ("Port", port),
        ("DefaultActions.member.1.Type", "forward"),
        ("DefaultActions.member.1.TargetGroupArn", group),
    ]
}
