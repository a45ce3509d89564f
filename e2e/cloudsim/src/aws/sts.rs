//! STS, version 2011-06-15.

use std::time::Duration;

use super::Handler;
use super::query::{Params, Xml};
use super::state::{State, iso};
use crate::clock::later;
use crate::control::CloudError;

/// Every implemented action.
pub(crate) const ACTIONS: &[(&str, Handler)] = &[
    ("AssumeRole", assume_role),
    ("AssumeRoleWithWebIdentity", assume_role_with_web_identity),
    ("GetCallerIdentity", identity),
];

/// Life of a session when the request does not say.
const SESSION_SECONDS: u64 = 3600;

fn identity(state: &mut State, _: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    xml.text("UserId", "AIDACLOUDSIM000000000");
    xml.text("Account", &state.account);
    let partition = state.partition();
    xml.text(
        "Arn",
        format!("arn:{partition}:iam::{}:user/cloudsim", state.account),
    );
    Ok(())
}

/// A new session of the role that the request names.
fn assume_role(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let (role, session) = (params.need("RoleArn")?, params.need("RoleSessionName")?);
    let invalid = || CloudError::new("ValidationError", format!("{role} is invalid"));
    let (head, name) = role.split_once(":role/").ok_or_else(invalid)?;
    let (iam, account) = head.rsplit_once(':').ok_or_else(invalid)?;
    if !iam.starts_with("arn:") || !iam.ends_with(":iam:") {
        return Err(invalid());
    }
    let partition = state.partition();
    let life = Duration::from_secs(params.number("DurationSeconds")?.unwrap_or(SESSION_SECONDS));
    let (key, secret, token) = (state.hex16(), state.hex16() + &state.hex16(), state.hex16());
    xml.el("Credentials", |xml| {
        xml.text("AccessKeyId", format!("ASIA{}", key.to_uppercase()));
        xml.text("SecretAccessKey", secret);
        xml.text("SessionToken", token);
        xml.text("Expiration", iso(later(state.now, life)));
    });
    xml.el("AssumedRoleUser", |xml| {
        xml.text("AssumedRoleId", format!("AROACLOUDSIM000000000:{session}"));
        xml.text(
            "Arn",
            format!("arn:{partition}:sts::{account}:assumed-role/{name}/{session}"),
        );
    });
    Ok(())
}

/// The call of a pod with a projected token. The signature of the token is not checked, its form is.
fn assume_role_with_web_identity(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let token = params.need("WebIdentityToken")?;
    let parts: Vec<&str> = token.split('.').collect();
    if parts.len() != 3 || parts.iter().any(|part| part.is_empty()) {
        let text = "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)";
        return Err(CloudError::new("InvalidIdentityToken", text));
    }
    assume_role(state, params, xml)
}
