//! What the secure port reads of its callers and of the cluster.

use std::{convert::Infallible, fmt::Write as _};

use ccm_core::{
    config::{AuthenticationSettings, Settings},
    runtime::{Authenticator, Clock, DelegatedMetrics, HeaderNames, Random, bearer_token},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response,
    header::{AUTHORIZATION, GetAll},
};
use kube::client::Body;

use crate::{on_virtual_time, text};

/// The configmap that tells whose certificates the cluster believes.
const CONFIGMAP: &str = "configmap kube-system/extension-apiserver-authentication: ";

/// No error of the configmap quotes its content, of which a megabyte is possible.
const LONGEST_ERROR: usize = 600;

/// The answer to the question for the configmap, as the API server's bytes.
///
/// Laws: a refusal is one short line that names the configmap; what is refused stops nothing where
/// that is tolerated.
pub fn fuzz_cluster_trusts(data: &[u8]) {
    let Ok(settings) = Settings::parse(["--cloud-provider=aws"]) else {
        return;
    };
    let strict = settings.authentication;
    let tolerant = AuthenticationSettings {
        tolerate_lookup_failure: true,
        ..strict.clone()
    };
    on_virtual_time(async {
        if let Err(error) = authenticator(&strict, data).await {
            assert!(
                error.starts_with(CONFIGMAP)
                    && error.len() < LONGEST_ERROR
                    && !error.contains('\n'),
                "{error:?}"
            );
        }
        assert_eq!(authenticator(&tolerant, data).await, Ok(()));
    });
}

async fn authenticator(settings: &AuthenticationSettings, answer: &[u8]) -> Result<(), String> {
    let answer = answer.to_vec();
    let service = tower::service_fn(move |_: Request<Body>| {
        let answer = Response::new(Body::from(answer.clone()));
        async move { Ok::<_, Infallible>(answer) }
    });
    let client = kube::Client::new(service, "default");
    let metrics = DelegatedMetrics::new(&prometheus::Registry::new());
    let metrics = metrics.map_err(|error| error.to_string())?;
    let (clock, random) = (Clock::system(), Random::seeded(1));
    Authenticator::start(settings, Some(client), clock, random, &metrics)
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

fn names() -> HeaderNames {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    HeaderNames {
        username: names(&["X-Remote-User", "X-User"]),
        uid: names(&["X-Remote-Uid"]),
        group: names(&["X-Remote-Group"]),
        extra_prefix: names(&[EXTRA]),
    }
}

const EXTRA: &str = "X-Remote-Extra-";

/// The texts of a header; other bytes are no text.
fn texts<'a>(values: GetAll<'a, HeaderValue>) -> impl Iterator<Item = &'a str> {
    let bytes = values.into_iter().map(HeaderValue::as_bytes);
    bytes.filter_map(|bytes| std::str::from_utf8(bytes).ok())
}

/// The headers of a front proxy, one a line as `name: value`.
///
/// Laws: nobody is told without a user; what is told stands in the headers, nothing of it is lost,
/// and nothing of it comes from a header with another name; every key of an extra value that a
/// proxy escapes is read back.
pub fn fuzz_request_headers(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            // A request has far fewer; the map itself holds no more than 2^15.
            let _ = headers.try_append(name, value);
        }
    }
    let users: Vec<&str> = ["x-remote-user", "x-user"]
        .into_iter()
        .flat_map(|name| texts(headers.get_all(name)))
        .filter(|user| !user.is_empty())
        .collect();
    let told = names().identity(&headers);
    assert_eq!(
        told.as_ref().map(|caller| caller.user.as_str()),
        users.first().copied()
    );
    if let Some(caller) = told {
        let groups = texts(headers.get_all("x-remote-group"));
        let groups: Vec<&str> = groups.filter(|group| !group.is_empty()).collect();
        assert_eq!(caller.groups, groups);
        let mut uids = texts(headers.get_all("x-remote-uid")).filter(|uid| !uid.is_empty());
        assert_eq!(caller.uid, uids.next().unwrap_or_default());
        let prefix = EXTRA.to_ascii_lowercase();
        let extra = headers
            .keys()
            .filter(|name| name.as_str().starts_with(&prefix));
        let extra: usize = extra.map(|name| texts(headers.get_all(name)).count()).sum();
        assert_eq!(caller.extra.values().map(Vec::len).sum::<usize>(), extra);
    }
    if let Some(key) = text(data) {
        escaped_key_is_read_back(key);
    }
}

/// Escaped as a proxy does it, since the name of a header has no case and not every character.
fn escaped_key_is_read_back(key: &str) {
    let mut name = EXTRA.to_owned();
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' => name.push(char::from(byte)),
            _ => {
                // Writing to a text cannot fail.
                let _ = write!(name, "%{byte:02X}");
            }
        }
    }
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        return;
    };
    let mut headers = HeaderMap::new();
    headers.insert("x-remote-user", HeaderValue::from_static("jane"));
    headers.insert(name, HeaderValue::from_static("value"));
    let told = names().identity(&headers);
    let extra = told.map(|caller| caller.extra).unwrap_or_default();
    let want = [(key.to_owned(), vec!["value".to_owned()])];
    assert_eq!(extra, want.into());
}

/// The header of a bearer token.
///
/// Laws: a token is one word that is not empty, of the scheme `Bearer` and no other; sent again as
/// such, it is the same token.
pub fn fuzz_bearer_tokens(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else {
        return;
    };
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, value);
    let Some(token) = bearer_token(&headers) else {
        return;
    };
    assert!(!token.is_empty() && !token.contains(' '), "{token:?}");
    let scheme = text(data).and_then(|text| text.trim().split(' ').next());
    assert!(scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")));
    let again = HeaderValue::from_str(&format!("Bearer {token} rest"));
    let again = again.map(|value| HeaderMap::from_iter([(AUTHORIZATION, value)]));
    assert_eq!(again.ok().as_ref().and_then(bearer_token), Some(token));
}
