//! AWS: EC2, both load balancer APIs, STS and the instance metadata service.

mod ec2;
mod elb;
mod elbv2;
mod handle;
mod imds;
mod model;
pub(crate) mod query;
pub(crate) mod state;
mod sts;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::request::Parts;

pub use ec2::launch::RunInstance;
pub use elb::{
    ClassicAttributes, ClassicHealthCheck, ClassicListener, ClassicLoadBalancer, ClassicPolicy,
};
pub use handle::Cluster;
pub use model::*;
pub use state::{Options, Quotas, Settings, Zone};

use crate::clock::Clock;
use crate::control::{Answer, Call, CloudError, ConnectionClosed, Control, Dialect, PageFault};
use crate::iam::Iam;
use query::{Params, Xml};
use state::State;

/// Reads parameters, changes the state, writes the inside of the answer. A handler that fails has changed nothing.
type Handler = fn(&mut State, &Params, &mut Xml) -> Result<(), CloudError>;

/// The emulated AWS account, region and metadata service.
#[derive(Debug)]
pub struct Aws {
    clock: Clock,
    state: Mutex<State>,
    iam: Iam,
}

/// An API of the query protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Api {
    Ec2,
    Elbv2,
    Elb,
    Sts,
}

impl Api {
    const ALL: [Self; 4] = [Self::Ec2, Self::Elbv2, Self::Elb, Self::Sts];

    /// Name in the call log.
    fn name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Elbv2 => "elbv2",
            Self::Elb => "elb",
            Self::Sts => "sts",
        }
    }

    /// Name in the credential scope of a signature. Both load balancer APIs share one.
    fn signing_name(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Elbv2 | Self::Elb => "elasticloadbalancing",
            Self::Sts => "sts",
        }
    }

    fn version(self) -> &'static str {
        match self {
            Self::Ec2 => "2016-11-15",
            Self::Elbv2 => "2015-12-01",
            Self::Elb => "2012-06-01",
            Self::Sts => "2011-06-15",
        }
    }

    fn namespace(self) -> &'static str {
        match self {
            Self::Ec2 => "http://ec2.amazonaws.com/doc/2016-11-15/",
            Self::Elbv2 => "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/",
            Self::Elb => "http://elasticloadbalancing.amazonaws.com/doc/2012-06-01/",
            Self::Sts => "https://sts.amazonaws.com/doc/2011-06-15/",
        }
    }

    fn actions(self) -> &'static [(&'static str, Handler)] {
        match self {
            Self::Ec2 => ec2::ACTIONS,
            Self::Elbv2 => elbv2::ACTIONS,
            Self::Elb => elb::ACTIONS,
            Self::Sts => sts::ACTIONS,
        }
    }

    /// The API of a request: the credential scope names the service, `Version` alone decides when unsigned.
    fn of(parts: &Parts, version: &str) -> Option<Self> {
        let scope = credential(parts).and_then(|credential| credential.split('/').nth(3));
        let mut fitting = Self::ALL
            .into_iter()
            .filter(|api| scope.is_none_or(|scope| scope == api.signing_name()));
        fitting.find(|api| api.version() == version)
    }
}

/// `… Credential=AKID/20260101/us-west-2/ec2/aws4_request, …` → from `AKID` to `aws4_request`.
fn credential(parts: &Parts) -> Option<&str> {
    let header = parts.headers.get(http::header::AUTHORIZATION)?;
    let (_, credential) = header.to_str().ok()?.split_once("Credential=")?;
    credential.split([',', ' ']).next()
}

/// The id of the key that signed the request.
fn access_key(parts: &Parts) -> Option<String> {
    let key = credential(parts)?.split('/').next()?;
    Some(key.to_owned())
}

/// Writes answers of one call.
struct Writer {
    api: Api,
    request_id: String,
}

impl Writer {
    fn answer(&self, status: u16, body: String, code: Option<String>) -> Answer {
        let content_type = if self.api == Api::Ec2 {
            "text/xml;charset=UTF-8"
        } else {
            "text/xml"
        };
        Answer {
            status,
            content_type,
            headers: Vec::new(),
            body: Bytes::from(body),
            code,
            denied: None,
        }
    }

    fn success(&self, action: &str, content: &Xml) -> Answer {
        let root = format!("{action}Response");
        let body = Xml::document(&root, self.api.namespace(), |xml| {
            if self.api == Api::Ec2 {
                xml.text("requestId", &self.request_id);
                xml.append(content);
            } else {
                xml.el(&format!("{action}Result"), |xml| xml.append(content));
                xml.el("ResponseMetadata", |xml| {
                    xml.text("RequestId", &self.request_id);
                });
            }
        });
        self.answer(200, body, None)
    }
}

impl Dialect for Writer {
    fn error(&self, error: &CloudError, status: u16) -> Answer {
        let body = if self.api == Api::Ec2 {
            Xml::document("Response", "", |xml| {
                xml.el("Errors", |xml| {
                    xml.el("Error", |xml| {
                        xml.text("Code", &error.code);
                        xml.text("Message", &error.message);
                    });
                });
                xml.text("RequestID", &self.request_id);
            })
        } else {
            Xml::document("ErrorResponse", self.api.namespace(), |xml| {
                xml.el("Error", |xml| {
                    xml.text(
                        "Type",
                        if error.status < 500 {
                            "Sender"
                        } else {
                            "Receiver"
                        },
                    );
                    xml.text("Code", &error.code);
                    xml.text("Message", &error.message);
                });
                xml.text("RequestId", &self.request_id);
            })
        };
        self.answer(status, body, Some(error.code.clone()))
    }

    fn throttled(&self) -> CloudError {
        if self.api == Api::Ec2 {
            CloudError::new("RequestLimitExceeded", "Request limit exceeded.").with_status(503)
        } else {
            CloudError::new("Throttling", "Rate exceeded")
        }
    }
}

impl Aws {
    pub(crate) fn new(options: Options, clock: Clock) -> Self {
        Self {
            clock,
            state: Mutex::new(State::new(options)),
            iam: Iam::default(),
        }
    }

    pub(crate) fn iam(&self) -> &Iam {
        &self.iam
    }

    /// The state, brought to the present, for a change.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.read();
        state.touch();
        state
    }

    /// The state, brought to the present, for a look.
    fn read(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance(self.clock.now());
        state
    }

    /// Every implemented action as `service:Action`.
    pub fn actions(&self) -> Vec<String> {
        let of = |api: Api| {
            api.actions()
                .iter()
                .map(move |(action, _)| format!("{}:{action}", api.name()))
        };
        Api::ALL.into_iter().flat_map(of).collect()
    }

    /// Answers a request of an AWS client.
    pub(crate) async fn handle(
        &self,
        control: &Control,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Answer, ConnectionClosed> {
        let agent = parts
            .headers
            .get(http::header::USER_AGENT)
            .and_then(|value| value.to_str().ok());
        let agent = agent.unwrap_or_default().to_owned();
        if parts.uri.path().starts_with("/latest/") {
            let call = Call::new("imds", imds::action(parts), imds::params(parts), agent);
            let imds = imds::Plain;
            return control
                .run(call, &imds, |_| imds::answer(&self.read(), parts))
                .await;
        }
        let mut params = Params::parse(parts.uri.query().unwrap_or_default().as_bytes());
        params.merge(Params::parse(body));
        let action = params.remove("Action").unwrap_or_default();
        let version = params.remove("Version").unwrap_or_default();
        let request_id = self.read().request_id();
        let Some(api) = Api::of(parts, &version) else {
            let api = Api::Sts; // for the form of the error only
            let writer = Writer { api, request_id };
            let text = format!(
                "Could not find operation {action} for version {version}: no such service is emulated"
            );
            let call = Call::new("unknown", action, params.into_map(), agent);
            let error = CloudError::new("InvalidAction", text);
            return control
                .run(call, &writer, |_| writer.error(&error, 400))
                .await;
        };
        let writer = Writer { api, request_id };
        let call = Call::new(api.name(), action.clone(), params.clone().into_map(), agent)
            .signed_by(access_key(parts));
        let effect = |fault| self.perform(&writer, &action, &params, fault);
        control.run(call, &writer, effect).await
    }

    fn perform(
        &self,
        writer: &Writer,
        action: &str,
        params: &Params,
        fault: Option<PageFault>,
    ) -> Answer {
        let handler = writer
            .api
            .actions()
            .iter()
            .find(|(name, _)| *name == action);
        let Some((_, handler)) = handler else {
            let text = format!("The action {action} is not valid for this web service.");
            return writer.error(&CloudError::new("InvalidAction", text), 400);
        };
        let reads = action.starts_with("Describe") || action.starts_with("Get");
        let mut state = if reads { self.read() } else { self.lock() };
        let service = writer.api.signing_name();
        if let Err(denial) = self.iam.authorize(&state, service, action, params) {
            let mut answer = writer.error(&denial.error, denial.error.status);
            answer.denied = Some(denial.permission);
            return answer;
        }
        if params.get("DryRun") == Some("true") {
            let text = "Request would have succeeded, but DryRun flag is set.";
            let error = CloudError::new("DryRunOperation", text).with_status(412);
            return writer.error(&error, error.status);
        }
        state.page_fault = fault;
        let mut content = Xml::default();
        match handler(&mut state, params, &mut content) {
            Ok(()) => writer.success(action, &content),
            Err(error) => writer.error(&error, error.status),
        }
    }
}
