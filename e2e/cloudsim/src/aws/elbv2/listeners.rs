//! Listeners.

use super::super::model::Listener;
use super::super::query::{Params, Xml};
use super::super::state::State;
use super::{configuration, limited, listener_not_found, page_size, tags, validation};
use crate::control::CloudError;

const DEFAULT_POLICY: &str = "ELBSecurityPolicy-2016-08";

/// Which target group protocols a listener may forward to.
fn compatible(listener: &str) -> &'static [&'static str] {
    match listener {
        "TCP" => &["TCP", "TCP_UDP"],
        "UDP" => &["UDP", "TCP_UDP"],
        "TLS" => &["TCP", "TLS"],
        "TCP_UDP" => &["TCP_UDP"],
        _ => &[],
    }
}

/// The target group of the one default action that a network load balancer takes.
fn forward_to(params: &Params) -> Result<Option<String>, CloudError> {
    let actions = params.structs("DefaultActions.member");
    let [action] = actions.as_slice() else {
        return match actions.len() {
            0 => Ok(None),
            _ => Err(CloudError::new(
                "TooManyActions",
                "A listener takes exactly one default action",
            )),
        };
    };
    if action.get("Type") != Some("forward") {
        let text = "A listener of a network load balancer takes actions of type 'forward' only";
        return Err(CloudError::new("InvalidLoadBalancerAction", text));
    }
    let listed = action.structs("ForwardConfig.TargetGroups.member");
    let arn = action
        .get("TargetGroupArn")
        .or_else(|| listed.first().and_then(|group| group.get("TargetGroupArn")));
    arn.map(|arn| Some(arn.to_owned()))
        .ok_or_else(|| validation("A forward action needs a TargetGroupArn"))
}

/// Takes protocol, port, certificates, policy and action from the request, and what is missing there from `listener`.
fn apply(
    state: &mut State,
    params: &Params,
    mut listener: Listener,
) -> Result<Listener, CloudError> {
    if let Some(protocol) = params.get("Protocol") {
        protocol.clone_into(&mut listener.protocol);
    }
    if let Some(port) = params.number("Port")? {
        listener.port = port;
    }
    if let Some(arn) = forward_to(params)? {
        listener.target_group_arn = arn;
    }
    if params.has("AlpnPolicy") {
        listener.alpn = params.members("AlpnPolicy");
    }
    if compatible(&listener.protocol).is_empty() {
        let text = format!(
            "Protocol '{}' must be one of 'TCP, UDP, TLS, TCP_UDP'",
            listener.protocol
        );
        return Err(CloudError::new("UnsupportedProtocol", text));
    }
    if listener.port == 0 {
        return Err(validation("Port must be from 1 to 65535"));
    }
    let others = state
        .all
        .listeners
        .values()
        .filter(|other| other.arn != listener.arn);
    let mut siblings = others.filter(|other| other.load_balancer_arn == listener.load_balancer_arn);
    if siblings.any(|other| other.port == listener.port) {
        let lb = &listener.load_balancer_arn;
        let text = format!("A listener already exists on this port for this load balancer '{lb}'");
        return Err(CloudError::new("DuplicateListener", text));
    }
    apply_tls(state, params, &mut listener)?;
    check_target(state, &listener)?;
    Ok(listener)
}

fn apply_tls(state: &State, params: &Params, listener: &mut Listener) -> Result<(), CloudError> {
    let named = params.structs("Certificates.member");
    let named: Vec<String> = named
        .iter()
        .filter_map(|each| each.get("CertificateArn").map(str::to_owned))
        .collect();
    let policy = params.get("SslPolicy").filter(|policy| !policy.is_empty());
    if listener.protocol != "TLS" {
        if policy.is_some() || !named.is_empty() || !listener.alpn.is_empty() {
            let text = format!(
                "Certificates, SSL policies and ALPN need a TLS listener, not {}",
                listener.protocol
            );
            return Err(validation(text));
        }
        listener.certificates.clear();
        listener.ssl_policy = None;
        return Ok(());
    }
    if !named.is_empty() {
        listener.certificates = named;
    }
    if let Some(policy) = policy {
        listener.ssl_policy = Some(policy.to_owned());
    }
    let policy = listener
        .ssl_policy
        .get_or_insert_with(|| DEFAULT_POLICY.to_owned());
    if !policy.starts_with("ELBSecurityPolicy-") {
        return Err(CloudError::new(
            "SSLPolicyNotFound",
            format!("SSL policy '{policy}' not found"),
        ));
    }
    if listener.certificates.is_empty() {
        return Err(validation(
            "A certificate must be specified for TLS listeners",
        ));
    }
    let mut named = listener.certificates.iter();
    if let Some(arn) = named.find(|arn| !state.certificate_exists(arn)) {
        return Err(CloudError::new(
            "CertificateNotFound",
            format!("Certificate '{arn}' not found"),
        ));
    }
    Ok(())
}

impl State {
    /// Every ARN of ACM and IAM is one of a certificate, unless a test took it away.
    pub(crate) fn certificate_exists(&self, arn: &str) -> bool {
        let service = arn.split(':').nth(2);
        arn.starts_with("arn:aws")
            && matches!(service, Some("acm" | "iam"))
            && self.missing_certificates.iter().all(|gone| gone != arn)
    }
}

fn check_target(state: &mut State, listener: &Listener) -> Result<(), CloudError> {
    let lb = state.load_balancer(&listener.load_balancer_arn)?.clone();
    let group = state.target_group(&listener.target_group_arn)?.clone();
    if !compatible(&listener.protocol).contains(&group.protocol.as_str()) {
        let text = format!(
            "The {} listener is not compatible with the {} target group '{}'",
            listener.protocol, group.protocol, group.arn
        );
        return Err(CloudError::new("IncompatibleProtocols", text));
    }
    if group.vpc_id != lb.vpc_id {
        let text = format!(
            "Target group '{}' is not in VPC '{}' of the load balancer",
            group.arn, lb.vpc_id
        );
        return Err(configuration(text));
    }
    if state
        .user_of(&group.arn)
        .is_some_and(|other| other != lb.arn)
    {
        let text = format!(
            "The following target groups cannot be associated with more than one load balancer: {}",
            group.arn
        );
        return Err(CloudError::new("TargetGroupAssociationLimit", text));
    }
    Ok(())
}

/// CreateListener.
pub(crate) fn create(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let lb_arn = params.need("LoadBalancerArn")?;
    params.need("Protocol")?;
    params.need("Port")?;
    params.need("DefaultActions.member.1.Type")?;
    let lb = state.load_balancer(lb_arn)?.arn.clone();
    let own = state
        .all
        .listeners
        .values()
        .filter(|listener| listener.load_balancer_arn == lb)
        .count();
    let blank = Listener {
        arn: String::new(),
        load_balancer_arn: lb,
        port: 0,
        protocol: String::new(),
        ssl_policy: None,
        certificates: Vec::new(),
        alpn: Vec::new(),
        target_group_arn: String::new(),
        tags: tags::read(params)?,
    };
    let mut listener = apply(state, params, blank)?;
    if own >= state.quotas.listeners_per_load_balancer {
        let text =
            format!("The maximum number of listeners has been reached on load balancer '{lb_arn}'");
        return Err(CloudError::new("TooManyListeners", text));
    }
    let hash = state.hex16();
    listener.arn = format!(
        "{}/{hash}",
        lb_arn.replacen(":loadbalancer/", ":listener/", 1)
    );
    write_all(xml, [&listener]);
    state.all.listeners.insert(listener.arn.clone(), listener);
    Ok(())
}

/// ModifyListener.
pub(crate) fn modify(state: &mut State, params: &Params, xml: &mut Xml) -> Result<(), CloudError> {
    let arn = params.need("ListenerArn")?;
    let present = state
        .all
        .listeners
        .get(arn)
        .cloned()
        .ok_or_else(|| listener_not_found(arn))?;
    let listener = apply(state, params, present)?;
    write_all(xml, [&listener]);
    state.all.listeners.insert(listener.arn.clone(), listener);
    Ok(())
}

/// DeleteListener.
pub(crate) fn delete(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let arn = params.need("ListenerArn")?;
    state
        .all
        .listeners
        .remove(arn)
        .map(|_| ())
        .ok_or_else(|| listener_not_found(arn))
}

/// DescribeListeners of a load balancer, or by ARN.
pub(crate) fn describe(
    state: &mut State,
    params: &Params,
    xml: &mut Xml,
) -> Result<(), CloudError> {
    let arns = limited(params, "ListenerArns")?;
    let lb = params.get("LoadBalancerArn");
    match lb {
        Some(arn) => {
            state.load_balancer(arn)?;
        }
        None if arns.is_empty() => {
            return Err(validation(
                "Specify either listener ARNs or a load balancer ARN",
            ));
        }
        None => {}
    }
    let known = |arn: &String| state.all.listeners.contains_key(arn) && state.visible(arn);
    if arns.iter().any(|arn| !known(arn)) {
        return Err(CloudError::new(
            "ListenerNotFound",
            "One or more listeners not found",
        ));
    }
    let asked = |listener: &Listener| {
        lb.is_none_or(|lb| lb == listener.load_balancer_arn)
            && (arns.is_empty() || arns.contains(&listener.arn))
            && state.visible(&listener.arn)
    };
    let items = state
        .all
        .listeners
        .values()
        .filter(|listener| asked(listener));
    let items = items
        .map(|listener| (listener.arn.clone(), listener))
        .collect();
    let (page, next) = state.page(items, params.get("Marker"), page_size(params)?)?;
    write_all(xml, page);
    xml.opt("NextMarker", next);
    Ok(())
}

fn write_all<'a>(xml: &mut Xml, listeners: impl IntoIterator<Item = &'a Listener>) {
    xml.list("Listeners", "member", listeners, |xml, listener| {
        xml.text("ListenerArn", &listener.arn);
        xml.text("LoadBalancerArn", &listener.load_balancer_arn);
        xml.text("Port", listener.port);
        xml.text("Protocol", &listener.protocol);
        if !listener.certificates.is_empty() {
            xml.list(
                "Certificates",
                "member",
                &listener.certificates,
                |xml, arn| {
                    xml.text("CertificateArn", arn);
                },
            );
        }
        xml.opt("SslPolicy", listener.ssl_policy.as_ref());
        if !listener.alpn.is_empty() {
            xml.texts("AlpnPolicy", "member", &listener.alpn);
        }
        xml.list("DefaultActions", "member", [()], |xml, ()| {
            xml.text("Type", "forward");
            xml.text("TargetGroupArn", &listener.target_group_arn);
            xml.text("Order", 1);
            xml.el("ForwardConfig", |xml| {
                xml.list("TargetGroups", "member", [()], |xml, ()| {
                    xml.text("TargetGroupArn", &listener.target_group_arn);
                });
            });
        });
    });
}
