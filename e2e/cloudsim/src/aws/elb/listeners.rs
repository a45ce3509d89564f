//! Listeners.

use std::collections::BTreeSet;

use super::super::query::{Params, Xml};
use super::super::state::State;
use super::model::{ClassicListener, ClassicLoadBalancer};
use super::policies::{self, DEFAULT_SSL_POLICY};
use super::{configuration, need, port, validation};
use crate::control::CloudError;

const PROTOCOLS: [&str; 4] = ["HTTP", "HTTPS", "TCP", "SSL"];

/// Whether a protocol is encrypted.
pub(super) fn secure(protocol: &str) -> bool {
    matches!(protocol, "HTTPS" | "SSL")
}

fn speaks_http(protocol: &str) -> bool {
    matches!(protocol, "HTTP" | "HTTPS")
}

/// Protocols are read in any case and answered in upper case.
fn protocol(text: &str) -> Result<String, CloudError> {
    let upper = text.to_ascii_uppercase();
    if PROTOCOLS.contains(&upper.as_str()) {
        return Ok(upper);
    }
    let text = format!("Protocol '{text}' is not supported: use one of HTTP, HTTPS, TCP, SSL");
    Err(CloudError::new("UnsupportedProtocol", text))
}

fn read_one(item: &Params) -> Result<ClassicListener, CloudError> {
    let front = protocol(need(item, "Protocol")?)?;
    let plain = if speaks_http(&front) { "HTTP" } else { "TCP" };
    let back = match item.get("InstanceProtocol").filter(|text| !text.is_empty()) {
        Some(text) => protocol(text)?,
        None => plain.to_owned(),
    };
    if speaks_http(&front) != speaks_http(&back) {
        let text = format!(
            "The instance protocol {back} does not fit the listener protocol {front}: both must be one of HTTP and HTTPS, or both one of TCP and SSL"
        );
        return Err(configuration(text));
    }
    Ok(ClassicListener {
        port: port(item, "LoadBalancerPort")?,
        protocol: front,
        instance_port: port(item, "InstancePort")?,
        instance_protocol: back,
        certificate: item
            .get("SSLCertificateId")
            .filter(|arn| !arn.is_empty())
            .map(str::to_owned),
        policies: BTreeSet::new(),
    })
}

/// `Listeners.member.N`, at least one, with certificates that exist.
pub(super) fn read(state: &State, params: &Params) -> Result<Vec<ClassicListener>, CloudError> {
    let items = params.structs("Listeners.member");
    if items.is_empty() {
        need(params, "Listeners")?;
    }
    let listeners: Vec<ClassicListener> = items.iter().map(read_one).collect::<Result<_, _>>()?;
    for listener in &listeners {
        match (&listener.certificate, secure(&listener.protocol)) {
            (None, true) => {
                return Err(validation(
                    "Secure Listeners need to specify a SSLCertificateId",
                ));
            }
            (Some(_), false) => {
                let text = format!(
                    "SSLCertificateId is for HTTPS and SSL listeners only, not for {}",
                    listener.protocol
                );
                return Err(validation(text));
            }
            (Some(arn), true) if !state.certificate_exists(arn) => {
                let text = format!("Server Certificate not found for the key: {arn}");
                return Err(CloudError::new("CertificateNotFound", text));
            }
            _ => {}
        }
    }
    Ok(listeners)
}

/// Whether two listeners are the same to CreateLoadBalancerListeners.
pub(super) fn same(a: &ClassicListener, b: &ClassicListener) -> bool {
    let key = |listener: &ClassicListener| {
        (
            listener.port,
            listener.protocol.clone(),
            listener.instance_port,
            listener.instance_protocol.clone(),
            listener.certificate.clone(),
        )
    };
    key(a) == key(b)
}

/// Adds listeners. One that is there already, with the same settings, is passed over.
pub(super) fn add(
    lb: &mut ClassicLoadBalancer,
    wanted: Vec<ClassicListener>,
) -> Result<(), CloudError> {
    for mut listener in wanted {
        if let Some(present) = lb.listeners.get(&listener.port) {
            if same(present, &listener) {
                continue;
            }
            let text = format!(
                "A listener already exists for {} with LoadBalancerPort {}, but with a different InstancePort, Protocol, or SSLCertificateId",
                lb.name, listener.port
            );
            return Err(CloudError::new("DuplicateListener", text));
        }
        let contradicts = |other: &&ClassicListener| {
            other.instance_port == listener.instance_port
                && secure(&other.instance_protocol) != secure(&listener.instance_protocol)
        };
        if let Some(other) = lb.listeners.values().find(contradicts) {
            let text = format!(
                "Instance port {} is used with {} by the listener on port {}: one instance port cannot be both encrypted and not",
                listener.instance_port, other.instance_protocol, other.port
            );
            return Err(configuration(text));
        }
        if secure(&listener.protocol) {
            // AWS puts its default policy on every secure listener and shows it.
            lb.policies
                .entry(DEFAULT_SSL_POLICY.to_owned())
                .or_insert_with(|| policies::predefined(DEFAULT_SSL_POLICY));
            listener.policies.insert(DEFAULT_SSL_POLICY.to_owned());
        }
        lb.listeners.insert(listener.port, listener);
    }
    Ok(())
}

/// CreateLoadBalancerListeners: all of them, or none.
pub(crate) fn create(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    let wanted = read(state, params)?;
    add(&mut lb, wanted)?;
    state.store_classic(lb);
    Ok(())
}

/// DeleteLoadBalancerListeners. Ports without a listener are passed over; policies of instance ports stay.
pub(crate) fn delete(state: &mut State, params: &Params, _: &mut Xml) -> Result<(), CloudError> {
    let mut lb = state.named_classic(params)?;
    need(params, "LoadBalancerPorts.member.1")?;
    for text in params.members("LoadBalancerPorts") {
        let invalid = |_| validation(format!("LoadBalancerPort '{text}' is not a port"));
        let port: u16 = text.parse().map_err(invalid)?;
        lb.listeners.remove(&port);
    }
    state.store_classic(lb);
    Ok(())
}
