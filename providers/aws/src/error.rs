//! What the cloud's error codes mean, and how an SDK error becomes the text that a user reads
//! (specification: aws §4.15, §7.2, §8).

use std::{error::Error, time::Duration};

use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use aws_types::request_id::RequestId;
use ccm_core::cloud::{Class, CloudError};

/// Causes deeper than this are not printed: no chain of the SDK is that long.
const MAX_CAUSES: usize = 16;

/// The cloud asks for fewer calls.
pub const THROTTLED: &[&str] = &[
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "EC2ThrottledException",
    "TooManyRequestsException",
    "PriorRequestNotComplete",
    "BandwidthLimitExceeded",
];

/// The object that was asked for or named does not exist.
const NOT_FOUND: &[&str] = &[
    "InvalidInstanceID.NotFound",
    "InvalidGroup.NotFound",
    "InvalidSecurityGroupID.NotFound",
    "InvalidSecurityGroupRuleId.NotFound",
    "InvalidPermission.NotFound",
    "InvalidSubnetID.NotFound",
    "InvalidVpcID.NotFound",
    "InvalidRouteTableID.NotFound",
    "InvalidRoute.NotFound",
    "InvalidNetworkInterfaceID.NotFound",
    "LoadBalancerNotFound",
    "LoadBalancerNotFoundException",
    "TargetGroupNotFound",
    "TargetGroupNotFoundException",
    "ListenerNotFound",
    "ListenerNotFoundException",
    "PolicyNotFound",
];

/// An object is in the way or in another state than the call needs.
const CONFLICT: &[&str] = &[
    "DependencyViolation",
    "InvalidGroup.Duplicate",
    "InvalidPermission.Duplicate",
    "InvalidGroup.InUse",
    "IncorrectState",
    "IncorrectInstanceState",
    "ResourceInUse",
    "ResourceInUseException",
    "OperationNotPermitted",
    "DuplicateLoadBalancerName",
    "DuplicateTargetGroupName",
    "DuplicateListener",
    "RouteAlreadyExists",
    "DuplicatePolicyName",
];

/// A limit of the account is reached.
const QUOTA: &[&str] = &[
    "SecurityGroupLimitExceeded",
    "SecurityGroupsPerInstanceLimitExceeded",
    "SecurityGroupsPerInterfaceLimitExceeded",
    "RulesPerSecurityGroupLimitExceeded",
    "AddressLimitExceeded",
    "RouteLimitExceeded",
    "TagLimitExceeded",
    "ResourceLimitExceeded",
    "InsufficientFreeAddressesInSubnet",
    "TooManyLoadBalancers",
    "TooManyTargetGroups",
    "TooManyListeners",
    "TooManyTargets",
    "TooManyRegistrationsForTargetId",
    "TooManyUniqueTargetGroupsPerLoadBalancer",
    "TooManyCertificates",
    "TooManyTags",
    "TooManyPolicies",
    "TargetGroupAssociationLimit",
];

/// The credentials do not allow the call, or are no good.
const DENIED: &[&str] = &[
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "Blocked",
    "OptInRequired",
    "PendingVerification",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "ExpiredToken",
    "ExpiredTokenException",
];

/// What was asked for cannot be: the user's input names or combines wrong things.
const INVALID: &[&str] = &[
    "InvalidInstanceID.Malformed",
    "InvalidID",
    "InvalidGroupId.Malformed",
    "InvalidSubnetID.Malformed",
    "InvalidParameterValue",
    "InvalidParameterCombination",
    "InvalidParameter",
    "MissingParameter",
    "ValidationError",
    "UnsupportedOperation",
    "UnsupportedProtocol",
    "InvalidAction",
    "InvalidAllocationID.NotFound",
    "AllocationIdNotFound",
    "AvailabilityZoneNotSupported",
    "CertificateNotFound",
    "SSLPolicyNotFound",
    "PolicyTypeNotFound",
    "SubnetNotFound",
    "InvalidSubnet",
    "InvalidSecurityGroup",
    "InvalidConfigurationRequest",
    "InvalidScheme",
    "InvalidLoadBalancerAction",
    "IncompatibleProtocols",
    "DuplicateTagKeys",
];

/// Worth another try as it is, although the HTTP status might say otherwise.
const TRANSIENT: &[&str] = &[
    "InternalError",
    "InternalFailure",
    "ServerInternal",
    "ServiceUnavailable",
    "Unavailable",
    "RequestTimeout",
    "RequestTimeoutException",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "InvalidTarget",
    "InvalidInstance",
];

/// What an error code and the HTTP status mean. The code decides when it is known; an unknown one
/// falls back to the status, and what that does not tell is transient. HTTP 404 proves nothing: a
/// proxy answers so too.
pub fn classify(code: Option<&str>, status: Option<u16>) -> Class {
    let throttled = Class::Throttled { after: None };
    let tables = [
        (THROTTLED, throttled),
        (NOT_FOUND, Class::NotFound),
        (CONFLICT, Class::Conflict),
        (QUOTA, Class::Quota),
        (DENIED, Class::Denied),
        (INVALID, Class::Invalid),
        (TRANSIENT, Class::Transient),
    ];
    let known = code.and_then(|code| {
        tables
            .iter()
            .find(|(codes, _)| codes.contains(&code))
            .map(|(_, class)| *class)
    });
    known.unwrap_or(match status {
        Some(429) => throttled,
        Some(401 | 403) => Class::Denied,
        _ => Class::Transient,
    })
}

/// Turns an SDK error into the error of the seam.
///
/// A refused call reads `operation error <service id>: <Operation>, https response error
/// StatusCode: <n>, RequestID: <id>, api error <Code>: <message>`, as in the Go SDK; a call that
/// got no answer names every cause instead.
pub fn from_sdk<E>(
    service: &'static str,
    operation: &'static str,
    error: SdkError<E, HttpResponse>,
) -> CloudError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    let status = error
        .raw_response()
        .map(|response| response.status().as_u16());
    let prefix = format!("operation error {service}: {operation}");
    let Some(status) = status else {
        let reason = match &error {
            SdkError::ConstructionFailure(_) => "request could not be built",
            SdkError::TimeoutError(_) => "request timed out",
            _ => "request send failed",
        };
        let message = format!("{prefix}, {reason}, {}", causes(&error));
        return CloudError::transient(message).with_source(error);
    };
    let after = error.raw_response().and_then(retry_after);
    let meta = error.as_service_error().map(ProvideErrorMetadata::meta);
    let code = meta.and_then(|meta| meta.code()).map(str::to_owned);
    let request_id = meta
        .and_then(RequestId::request_id)
        .or_else(|| error.request_id())
        .unwrap_or_default();
    let what = match (&code, meta.and_then(|meta| meta.message())) {
        (Some(code), message) => format!("api error {code}: {}", message.unwrap_or_default()),
        (None, Some(message)) => message.to_owned(),
        (None, None) => causes(&error),
    };
    let message = format!(
        "{prefix}, https response error StatusCode: {status}, RequestID: {request_id}, {what}"
    );
    let class = match classify(code.as_deref(), Some(status)) {
        Class::Throttled { .. } => Class::Throttled { after },
        class => class,
    };
    let cloud = CloudError::new(class, message).with_source(error);
    match code {
        Some(code) => cloud.with_code(code),
        None => cloud,
    }
}

/// Whether the error is EC2's statement that an instance does not exist. The text is looked at as
/// well as the code, because wrappers flatten errors to text (REQ-AWS-INST-5).
pub fn is_instance_not_found(error: &CloudError) -> bool {
    const CODE: &str = "InvalidInstanceID.NotFound";
    error.code() == Some(CODE) || error.code().is_none() && error.to_string().contains(CODE)
}

/// Whether the error is the statement that these credentials do not permit this call. Credentials
/// that are no good, or a bare refusal, say nothing about the permissions.
pub fn is_not_permitted(error: &CloudError) -> bool {
    const CODES: [&str; 3] = [
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
    ];
    error.code().is_some_and(|code| CODES.contains(&code))
}

/// Whether the error is EC2's statement that this text cannot be an instance id. It must name the
/// id: a call for many is refused because of one.
pub fn is_malformed_instance_id(error: &CloudError, id: &str) -> bool {
    const CODES: [&str; 2] = ["InvalidInstanceID.Malformed", "InvalidID"];
    error.code().is_some_and(|code| CODES.contains(&code))
        && error
            .to_string()
            .split(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '.')))
            .any(|word| word == id)
}

/// The wait that the answer names, in whole seconds.
fn retry_after(response: &HttpResponse) -> Option<Duration> {
    response
        .headers()
        .get("retry-after")?
        .trim()
        .parse()
        .ok()
        .map(Duration::from_secs)
}

/// All causes below `error`, outermost first, each text once.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next.filter(|_| texts.len() < MAX_CAUSES) {
        let text = cause.to_string();
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        next = cause.source();
    }
    if texts.is_empty() {
        return error.to_string();
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::operation::describe_instances::DescribeInstancesError;
    use aws_smithy_runtime_api::{client::result::ConnectorError, http::StatusCode};
    use aws_smithy_types::{body::SdkBody, error::ErrorMetadata};
    use proptest::prelude::*;

    use super::*;

    type Failed = SdkError<DescribeInstancesError, HttpResponse>;

    fn refused(
        status: u16,
        code: Option<&str>,
        header: Option<(&'static str, &'static str)>,
    ) -> Failed {
        let status = StatusCode::try_from(status).unwrap();
        let mut response = HttpResponse::new(status, SdkBody::empty());
        response.headers_mut().insert("x-amzn-requestid", "req-1");
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        let mut meta = ErrorMetadata::builder().message("what happened");
        if let Some(code) = code {
            meta = meta.code(code);
        }
        SdkError::service_error(DescribeInstancesError::generic(meta.build()), response)
    }

    fn converted(error: Failed) -> CloudError {
        from_sdk("EC2", "DescribeInstances", error)
    }

    /// REQ-AWS-INST-6
    #[test]
    fn every_code_of_the_table_has_its_class() {
        let throttled = Class::Throttled { after: None };
        for (codes, class) in [
            (THROTTLED, throttled),
            (NOT_FOUND, Class::NotFound),
            (CONFLICT, Class::Conflict),
            (QUOTA, Class::Quota),
            (DENIED, Class::Denied),
            (INVALID, Class::Invalid),
            (TRANSIENT, Class::Transient),
        ] {
            for code in codes {
                for status in [None, Some(400), Some(403), Some(503)] {
                    assert_eq!(classify(Some(code), status), class, "{code} {status:?}");
                }
            }
        }
    }

    #[test]
    fn no_code_is_in_two_tables() {
        let all: Vec<_> = [
            THROTTLED, NOT_FOUND, CONFLICT, QUOTA, DENIED, INVALID, TRANSIENT,
        ]
        .concat();
        let once: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(once.len(), all.len());
    }

    #[test]
    fn unknown_codes_fall_back_to_the_status_and_then_to_transient() {
        for (code, status, class) in [
            (Some("SomethingNew"), Some(400), Class::Transient),
            (Some("SomethingNew"), Some(403), Class::Denied),
            (None, Some(401), Class::Denied),
            (None, Some(429), Class::Throttled { after: None }),
            (None, Some(404), Class::Transient),
            (None, Some(500), Class::Transient),
            (None, Some(503), Class::Transient),
            (None, None, Class::Transient),
        ] {
            assert_eq!(classify(code, status), class, "{code:?} {status:?}");
        }
    }

    #[test]
    fn a_refused_call_reads_as_in_the_go_sdk() {
        let error = converted(refused(400, Some("InvalidInstanceID.NotFound"), None));
        assert_eq!(error.class(), Class::NotFound);
        assert_eq!(error.code(), Some("InvalidInstanceID.NotFound"));
        assert_eq!(
            error.to_string(),
            "operation error EC2: DescribeInstances, https response error StatusCode: 400, \
             RequestID: req-1, api error InvalidInstanceID.NotFound: what happened"
        );
        assert!(is_instance_not_found(&error));
    }

    #[test]
    fn a_throttled_call_carries_the_wait_that_the_cloud_named() {
        let error = converted(refused(503, Some("SlowDown"), Some(("retry-after", "7"))));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        let error = converted(refused(503, Some("RequestLimitExceeded"), None));
        assert_eq!(error.class(), Class::Throttled { after: None });
    }

    /// REQ-AWS-RETRY-6
    #[test]
    fn a_call_without_answer_names_the_real_cause() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = converted(SdkError::dispatch_failure(ConnectorError::io(
            refused.into(),
        )));
        assert_eq!(error.class(), Class::Transient);
        let text = error.to_string();
        assert!(
            text.starts_with("operation error EC2: DescribeInstances, request send failed, "),
            "{text}"
        );
        assert!(text.contains("connection refused"), "{text}");
        assert!(error.source().is_some());
    }

    #[test]
    fn only_an_error_that_names_the_id_says_that_it_is_malformed() {
        let error = CloudError::invalid("Invalid id: \"i-bad\" (expecting \"i-...\")");
        assert!(!is_malformed_instance_id(&error, "i-bad"), "no code");
        let error = error.with_code("InvalidInstanceID.Malformed");
        assert!(is_malformed_instance_id(&error, "i-bad"));
        assert!(!is_malformed_instance_id(&error, "i-ba"));
        let error = CloudError::invalid("i-bad").with_code("InvalidParameterValue");
        assert!(!is_malformed_instance_id(&error, "i-bad"));
    }

    /// REQ-AWS-INST-5
    #[test]
    fn a_flattened_not_found_is_recognised_by_its_text() {
        let text = "error listing AWS instances: \"InvalidInstanceID.NotFound: gone\"";
        assert!(is_instance_not_found(&CloudError::transient(text)));
        assert!(!is_instance_not_found(&CloudError::transient(
            "reset by peer"
        )));
        let other = CloudError::transient(text).with_code("RequestLimitExceeded");
        assert!(!is_instance_not_found(&other));
    }

    proptest! {
        #[test]
        fn no_answer_makes_the_classification_panic(
            code in proptest::option::of("[A-Za-z.]{0,24}|.{0,12}"),
            status in 400..600_u16,
            after in "[ 0-9+-]{0,24}|[ -~]{0,24}",
            id in "(i-)?[0-9a-f]{0,8}|.{0,8}",
        ) {
            let mut response = HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::empty());
            response.headers_mut().insert("retry-after", after.clone());
            let meta = ErrorMetadata::builder().message(format!("{id}, {id}"));
            let meta = code.iter().fold(meta, aws_smithy_types::error::metadata::Builder::code);
            let failed = DescribeInstancesError::generic(meta.build());
            let error = converted(SdkError::service_error(failed, response));
            prop_assert_eq!(error.code(), code.as_deref());
            let known = classify(code.as_deref(), Some(status));
            prop_assert_eq!(std::mem::discriminant(&error.class()), std::mem::discriminant(&known));
            let named = after.trim().parse::<u64>().ok();
            if let Class::Throttled { after } = error.class() {
                prop_assert_eq!(after.map(|after| after.as_secs()), named);
            }
            if is_malformed_instance_id(&error, &id) {
                prop_assert_eq!(error.class(), Class::Invalid);
            }
        }
    }
}
