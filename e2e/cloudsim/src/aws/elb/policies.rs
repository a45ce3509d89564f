//! Policies: the proxy protocol on instance ports, and the ciphers of secure listeners.

use std::collections::{BTreeMap, BTreeSet};

use super::super::query::{Params, Xml};
use super::super::state::State;
use super::listeners::secure;
use super::model::{ClassicLoadBalancer, ClassicPolicy};
use super::{configuration, need, port, validation};
use crate::control::CloudError;

const PROXY: &str = "ProxyProtocolPolicyType";
const SSL: &str = "SSLNegotiationPolicyType";
const REFERENCE: &str = "Reference-Security-Policy";

/// AWS's limit of policies of one load balancer.
const MAX_POLICIES: usize = 100;

/// What a secure listener has until another policy is set.
pub(super) const DEFAULT_SSL_POLICY: &str = "ELBSecurityPolicy-2016-08";

/// The security policies that AWS defines for classic load balancers.
const PREDEFINED: [&str; 9] = [
    "ELBSecurityPolicy-2011-08",
    "ELBSecurityPolicy-2014-01",
    "ELBSecurityPolicy-2014-10",
    "ELBSecurityPolicy-2015-02",
    "ELBSecurityPolicy-2015-03",
    "ELBSecurityPolicy-2015-05",
    DEFAULT_SSL_POLICY,
    "ELBSecurityPolicy-TLS-1-1-2017-01",
    "ELBSecurityPolicy-TLS-1-2-2017-01",
];

/// A security policy that AWS defines.
pub(super) fn predefined(name: &str) -> ClassicPolicy {
    ClassicPolicy {
        kind: SSL.to_owned(),
        attributes: BTreeMap::from([(REFERENCE.to_owned(), name.to_owned())]),
    }
}

fn policy_not_found(name: &str) -> CloudError {
    CloudError::new(
        "PolicyNotFound",
        format!("There is no policy with name {name}"),
    )
}

fn read_attributes(params: &Params) -> Result<BTreeMap<String, String>, CloudError> {
    let mut attributes = BTreeMap::new();
    for item in params.structs("PolicyAttributes.member") {
        let value = item.get("AttributeValue").unwrap_or_default();
        attributes.insert(need(&item, "AttributeName")?.to_owned(), value.to_owned());
    }
    Ok(attributes)
}

fn check_attributes(kind: &str, attributes: &BTreeMap<String, String>) -> Result<(), CloudError> {
    if kind == PROXY && !attributes.contains_key("ProxyProtocol") {
        return Err(configuration(
            "Policy type ProxyProtocolPolicyType needs the attribute ProxyProtocol",
        ));
    }
    for (name, value) in attributes {
        let switch = matches!(value.as_str(), "true" | "false");
        let valid = match kind {
            PROXY => name == "ProxyProtocol" && switch,
            // Besides a reference to one of AWS's policies there are switches named after protocols and ciphers.
            _ if name == REFERENCE => PREDEFINED.contains(&value.as_str()),
            _ => switch,
        };
        if !valid {
            let text = format!(
                "Attribute {name} with value '{value}' is not valid for policy type {kind}"
            );
            return Err(configuration(text));
        }
    }
    Ok(())
}

/// CreateLoadBalancerPolicy. The same policy again is no error.
pub(crate) fn create(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let name = need(params, "PolicyName")?;
    let kind = need(params, "PolicyTypeName")?;
    let mut lb = state.named_classic(params)?;
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    {
        let text = format!(
            "The policy name '{name}' can only contain alphanumeric characters and hyphens"
        );
        return Err(validation(text));
    }
    if ![PROXY, SSL].contains(&kind) {
        let text = format!("Policy type {kind} is not known here: use {PROXY} or {SSL}");
        return Err(CloudError::new("PolicyTypeNotFound", text));
    }
    let policy = ClassicPolicy {
        kind: kind.to_owned(),
        attributes: read_attributes(params)?,
    };
    check_attributes(kind, &policy.attributes)?;
    match lb.policies.get(name) {
        Some(present) if *present == policy => return Ok(()),
        Some(_) => {
            let text = format!(
                "A policy with the name {name} exists for load balancer {}, but with different attributes",
                lb.name
            );
            return Err(CloudError::new("DuplicatePolicyName", text));
        }
        None if lb.policies.len() >= MAX_POLICIES => {
            let text = format!("The limit of {MAX_POLICIES} policies has been reached");
            return Err(CloudError::new("TooManyPolicies", text));
        }
        None => {}
    }
    lb.policies.insert(name.to_owned(), policy);
    state.store_classic(lb);
    Ok(())
}

/// DescribeLoadBalancerPolicies of a load balancer; without one, those that AWS defines.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let known = match params.get("LoadBalancerName") {
        Some(_) => state.named_classic(params)?.policies,
        None => PREDEFINED
            .iter()
            .map(|name| ((*name).to_owned(), predefined(name)))
            .collect(),
    };
    let wanted = params.members("PolicyNames");
    if let Some(name) = wanted.iter().find(|name| !known.contains_key(*name)) {
        return Err(policy_not_found(name));
    }
    let shown = known
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.contains(name));
    xml.list(
        "PolicyDescriptions",
        "member",
        shown,
        |xml, (name, policy)| {
            xml.text("PolicyName", name);
            xml.text("PolicyTypeName", &policy.kind);
            xml.list(
                "PolicyAttributeDescriptions",
                "member",
                &policy.attributes,
                |xml, (key, value)| {
                    xml.text("AttributeName", key);
                    xml.text("AttributeValue", value);
                },
            );
        },
    );
    Ok(())
}

/// `PolicyNames`, which must exist and be of type `kind`.
fn named(
    lb: &ClassicLoadBalancer,
    params: &Params,
    kind: &str,
) -> Result<BTreeSet<String>, CloudError> {
    let names: BTreeSet<String> = params.members("PolicyNames").into_iter().collect();
    for name in &names {
        let policy = lb
            .policies
            .get(name)
            .ok_or_else(|| policy_not_found(name))?;
        if policy.kind != kind {
            let text = format!(
                "Policy {name} is of type {}; only {kind} can be set here",
                policy.kind
            );
            return Err(configuration(text));
        }
    }
    Ok(names)
}

/// SetLoadBalancerPoliciesOfListener replaces the policies of a secure listener.
pub(crate) fn set_of_listener(
    state: &mut State,
    params: &Params,
    _: &mut Xml,
) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    let port = port(params, "LoadBalancerPort")?;
    let names = named(&lb, params, SSL)?;
    let Some(listener) = lb.listeners.get_mut(&port) else {
        let text = format!("There is no listener on port {port} of {}", lb.name);
        return Err(CloudError::new("ListenerNotFound", text));
    };
    if !names.is_empty() && !secure(&listener.protocol) {
        let text = format!(
            "The listener on port {port} is {}: {SSL} is for HTTPS and SSL listeners",
            listener.protocol
        );
        return Err(configuration(text));
    }
    if names.len() > 1 {
        return Err(configuration("A listener takes one policy of this type"));
    }
    listener.policies = names;
    state.store_classic(lb);
    Ok(())
}

/// SetLoadBalancerPoliciesForBackendServer replaces the policies of an instance port; none removes them,
/// also where no listener uses the port any more.
pub(crate) fn set_of_backend(
    state: &mut State,
    params: &Params,
    _: &mut Xml,
) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    let port = port(params, "InstancePort")?;
    let names = named(&lb, params, PROXY)?;
    if names.is_empty() {
        lb.backend_policies.remove(&port);
    } else {
        let mut users = lb
            .listeners
            .values()
            .filter(|listener| listener.instance_port == port);
        let fits = |protocol: &str| matches!(protocol, "TCP" | "SSL");
        if !users.any(|listener| fits(&listener.instance_protocol)) {
            let text = format!("No TCP or SSL listener uses instance port {port}");
            return Err(configuration(text));
        }
        lb.backend_policies.insert(port, names);
    }
    state.store_classic(lb);
    Ok(())
}
