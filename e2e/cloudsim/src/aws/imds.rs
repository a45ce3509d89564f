//! The instance metadata service, as the instance set with `Aws::set_self_instance` sees it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use serde_json::json;

use super::model::Instance;
use super::state::{State, iso};
use crate::control::{Answer, CloudError, Dialect};

const TOKEN: &str = "Y2xvdWRzaW0tbWV0YWRhdGEtdG9rZW4=";
const TOKEN_PATH: &str = "/latest/api/token";
const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";
const TTL_HEADER: &str = "x-aws-ec2-metadata-token-ttl-seconds";

/// Name of the call in the log.
pub(crate) fn action(parts: &Parts) -> String {
    let name = match parts.uri.path() {
        TOKEN_PATH => "GetToken",
        "/latest/meta-data/instance-id" => "GetInstanceId",
        "/latest/dynamic/instance-identity/document" => "GetIdentityDocument",
        _ => "GetMetadata",
    };
    name.to_owned()
}

pub(crate) fn params(parts: &Parts) -> BTreeMap<String, String> {
    BTreeMap::from([("path".to_owned(), parts.uri.path().to_owned())])
}

/// The metadata service writes no documents for its errors.
pub(crate) struct Plain;

impl Dialect for Plain {
    fn error(&self, error: &CloudError, status: u16) -> Answer {
        text(
            status,
            "text/plain",
            error.message.clone(),
            Some(error.code.clone()),
        )
    }

    fn throttled(&self) -> CloudError {
        CloudError::new("503", "Slow down").with_status(503)
    }
}

fn text(status: u16, content_type: &'static str, body: String, code: Option<String>) -> Answer {
    Answer {
        status,
        content_type,
        headers: Vec::new(),
        body: Bytes::from(body),
        code,
        denied: None,
    }
}

pub(crate) fn answer(state: &State, parts: &Parts) -> Answer {
    match respond(state, parts) {
        Ok((content_type, body)) => {
            let mut answer = text(200, content_type, body, None);
            answer.headers.extend(token_life(parts));
            answer
        }
        Err(status) => text(
            status,
            "text/plain",
            String::new(),
            Some(status.to_string()),
        ),
    }
}

/// How long the session token lives, as it was asked for. Clients insist on it.
fn token_life(parts: &Parts) -> Option<(&'static str, String)> {
    let life = parts.headers.get(TTL_HEADER)?.to_str().ok()?;
    (parts.uri.path() == TOKEN_PATH).then(|| (TTL_HEADER, life.to_owned()))
}

fn respond(state: &State, parts: &Parts) -> Result<(&'static str, String), u16> {
    let path = parts.uri.path();
    if path == TOKEN_PATH {
        if parts.method != Method::PUT {
            return Err(405);
        }
        return match parts.headers.get(TTL_HEADER) {
            Some(_) => Ok(("text/plain", TOKEN.to_owned())),
            None => Err(400),
        };
    }
    if parts.method != Method::GET {
        return Err(405);
    }
    let token = parts.headers.get(TOKEN_HEADER);
    let valid = token.is_some_and(|token| token.as_bytes() == TOKEN.as_bytes());
    if !valid && (token.is_some() || state.settings.imds_token_required) {
        return Err(401);
    }
    let own = state
        .self_instance
        .as_ref()
        .and_then(|id| state.all.instances.get(id))
        .ok_or(404_u16)?;
    if path == "/latest/dynamic/instance-identity/document" {
        return Ok(("text/plain", identity(state, own)));
    }
    let value = match path.strip_prefix("/latest/meta-data/").unwrap_or_default() {
        "instance-id" => own.id.clone(),
        "instance-type" => own.instance_type.clone(),
        "local-hostname" | "hostname" => own.private_dns_name.clone(),
        "local-ipv4" => own.private_ip.map(|ip| ip.to_string()).ok_or(404_u16)?,
        "placement/availability-zone" => own.zone.clone(),
        "placement/availability-zone-id" => state.zone_id(&own.zone).to_owned(),
        "placement/region" => state.region.clone(),
        _ => return Err(404),
    };
    Ok(("text/plain", value))
}

fn identity(state: &State, own: &Instance) -> String {
    let document = json!({
        "accountId": state.account,
        "architecture": "x86_64",
        "availabilityZone": own.zone,
        "imageId": own.image_id,
        "instanceId": own.id,
        "instanceType": own.instance_type,
        "pendingTime": iso(own.launch_time),
        "privateIp": own.private_ip.map(|ip| ip.to_string()),
        "region": state.region,
        "version": "2017-09-30",
    });
    format!("{document:#}")
}
