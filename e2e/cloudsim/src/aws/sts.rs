//! STS, version 2011-06-15.

use std::time::Duration;

use super::Handler;
use super::query::{Params, Xml};
use super::state::{State, iso};
use crate::clock::later;
use crate::control::CloudError;

/// Every implemented action.
pub(crate) const ACTIONS: &[(&str, Handler)] =
    &[("AssumeRole", assume_role), ("GetCallerIdentity", identity)];

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
