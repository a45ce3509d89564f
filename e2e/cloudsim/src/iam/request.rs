//! Which permissions a call needs: actions, resources and the values of condition keys.

use super::condition::Context;
use super::decide::Access;
use crate::aws::Tags;
use crate::aws::query::Params;
use crate::aws::state::{State, tags_of};

/// Parameters of an EC2 action that name resources, with their types.
fn ec2_resources(action: &str) -> &'static [(&'static str, &'static str)] {
    match action {
        "AuthorizeSecurityGroupIngress"
        | "DeleteSecurityGroup"
        | "RevokeSecurityGroupIngress"
        | "UpdateSecurityGroupRuleDescriptionsIngress" => &[("GroupId", "security-group")],
        "ModifyInstanceAttribute" | "StartInstances" | "StopInstances" | "TerminateInstances" => {
            &[("InstanceId", "instance")]
        }
        "ModifyNetworkInterfaceAttribute" => &[("NetworkInterfaceId", "network-interface")],
        "CreateRoute" | "DeleteRoute" | "ReplaceRoute" => &[("RouteTableId", "route-table")],
        "AssociateRouteTable" => &[("RouteTableId", "route-table"), ("SubnetId", "subnet")],
        "AttachInternetGateway" => &[("InternetGatewayId", "internet-gateway"), ("VpcId", "vpc")],
        "CreateRouteTable" | "CreateSecurityGroup" | "CreateSubnet" => &[("VpcId", "vpc")],
        _ => &[],
    }
}

/// The type of what an EC2 action makes.
fn ec2_made(action: &str) -> Option<&'static str> {
    Some(match action {
        "AllocateAddress" => "elastic-ip",
        "CreateInternetGateway" => "internet-gateway",
        "CreateRouteTable" => "route-table",
        "CreateSecurityGroup" => "security-group",
        "CreateSubnet" => "subnet",
        "CreateVpc" => "vpc",
        "RunInstances" => "instance",
        _ => return None,
    })
}

/// The type that the prefix of an EC2 id stands for.
fn ec2_type(id: &str) -> &'static str {
    match id.split('-').next() {
        Some("i") => "instance",
        Some("subnet") => "subnet",
        Some("vpc") => "vpc",
        Some("sg") => "security-group",
        Some("rtb") => "route-table",
        Some("igw") => "internet-gateway",
        Some("eni") => "network-interface",
        Some("eipalloc") => "elastic-ip",
        _ => "unknown",
    }
}

/// The tags of an existing EC2 resource.
fn ec2_tags<'a>(state: &'a State, id: &str) -> Option<&'a Tags> {
    let all = &state.all;
    match ec2_type(id) {
        "instance" => all.instances.get(id).map(|item| &item.tags),
        "subnet" => all.subnets.get(id).map(|item| &item.tags),
        "vpc" => all.vpcs.get(id).map(|item| &item.tags),
        "security-group" => all.security_groups.get(id).map(|item| &item.tags),
        "route-table" => all.route_tables.get(id).map(|item| &item.tags),
        "internet-gateway" => all.internet_gateways.get(id).map(|item| &item.tags),
        "network-interface" => all.interfaces.get(id).map(|item| &item.tags),
        "elastic-ip" => all.addresses.get(id).map(|item| &item.tags),
        _ => None,
    }
}

/// The tags of an existing load balancer, listener or target group by its ARN.
fn elb_tags<'a>(state: &'a State, arn: &str) -> Option<&'a Tags> {
    let all = &state.all;
    let lb = all.load_balancers.get(arn).map(|item| &item.tags);
    lb.or_else(|| all.listeners.get(arn).map(|item| &item.tags))
        .or_else(|| all.target_groups.get(arn).map(|item| &item.tags))
}

/// Writes `prefix/key` → value for each tag.
fn put_tags(context: &mut Context, prefix: &str, tags: &Tags) {
    for (key, value) in tags {
        let key = format!("{prefix}/{key}").to_ascii_lowercase();
        context.insert(key, value.clone());
    }
}

struct Call<'a> {
    state: &'a State,
    service: &'a str,
    action: &'a str,
    /// Tags that the call brings along.
    tags: Tags,
}

impl Call<'_> {
    fn access(&self, resource: String, present: Option<&Tags>) -> Access {
        let mut context = Context::new();
        put_tags(&mut context, "aws:requesttag", &self.tags);
        if let Some(tags) = present {
            put_tags(&mut context, "aws:resourcetag", tags);
            let own = format!("{}:resourcetag", self.service);
            put_tags(&mut context, &own, tags);
        }
        Access {
            action: format!("{}:{}", self.service, self.action),
            resource,
            context,
        }
    }

    /// The permission to tag what the call makes.
    fn tagging(&self, action: &str, resource: String, tags: &Tags) -> Access {
        let mut context = Context::new();
        put_tags(&mut context, "aws:requesttag", tags);
        let key = format!("{}:createaction", self.service);
        context.insert(key, self.action.to_owned());
        Access {
            action: format!("{}:{action}", self.service),
            resource,
            context,
        }
    }

    fn ec2_arn(&self, kind: &str, id: &str) -> String {
        let state = self.state;
        let (partition, region, account) = (state.partition(), &state.region, &state.account);
        format!("arn:{partition}:ec2:{region}:{account}:{kind}/{id}")
    }
}

/// Everything that a call needs to be allowed. Empty for calls that need no permission.
pub(super) fn needed(state: &State, service: &str, action: &str, params: &Params) -> Vec<Access> {
    let mut call = Call {
        state,
        service,
        action,
        tags: Tags::new(),
    };
    match service {
        "ec2" => ec2(&mut call, params),
        "elasticloadbalancing" => elb(&mut call, params),
        "sts" if action == "AssumeRole" => {
            let role = params.get("RoleArn").unwrap_or("*").to_owned();
            vec![call.access(role, None)]
        }
        // The other calls of STS are open: the web identity is the permission.
        _ => Vec::new(),
    }
}

fn ec2(call: &mut Call<'_>, params: &Params) -> Vec<Access> {
    let action = call.action;
    if matches!(action, "CreateTags" | "DeleteTags") {
        call.tags = tags_of(params, "Tag");
        let ids = params.list("ResourceId");
        let access =
            |id: &String| call.access(call.ec2_arn(ec2_type(id), id), ec2_tags(call.state, id));
        return ids.iter().map(access).collect();
    }
    let specified = params.structs("TagSpecification").into_iter();
    let specified: Vec<(String, Tags)> = specified
        .map(|each| {
            let kind = each.get("ResourceType").unwrap_or_default().to_owned();
            (kind, tags_of(&each, "Tag"))
        })
        .filter(|(_, tags)| !tags.is_empty())
        .collect();
    for (_, tags) in &specified {
        call.tags.extend(tags.clone());
    }
    let mut all = Vec::new();
    for (key, kind) in ec2_resources(action) {
        let single = params.get(key).map(str::to_owned).into_iter();
        for id in single.chain(params.list(key)) {
            all.push(call.access(call.ec2_arn(kind, &id), ec2_tags(call.state, &id)));
        }
    }
    if let Some(kind) = ec2_made(action) {
        all.push(call.access(call.ec2_arn(kind, "*"), None));
    }
    if all.is_empty() {
        all.push(call.access("*".to_owned(), None));
    }
    for (kind, tags) in &specified {
        all.push(call.tagging("CreateTags", call.ec2_arn(kind, "*"), tags));
    }
    all
}

/// The ARN of what a call of either load balancer API makes, if it makes something with a name.
fn elb_made(call: &Call<'_>, params: &Params) -> Option<String> {
    let path = match call.action {
        "CreateLoadBalancer" => match params.get("Name") {
            Some(name) => format!("loadbalancer/net/{name}/*"),
            None => format!("loadbalancer/{}", params.get("LoadBalancerName")?),
        },
        "CreateTargetGroup" => format!("targetgroup/{}/*", params.get("Name")?),
        _ => return None,
    };
    Some(call.state.elb_arn(&path))
}

/// The permission to make the role of Elastic Load Balancing, which the first load balancer of an account needs.
fn service_linked_role(state: &State) -> Access {
    const SERVICE: &str = "elasticloadbalancing.amazonaws.com";
    let (partition, account) = (state.partition(), &state.account);
    let name = "AWSServiceRoleForElasticLoadBalancing";
    Access {
        action: "iam:CreateServiceLinkedRole".to_owned(),
        resource: format!("arn:{partition}:iam::{account}:role/aws-service-role/{SERVICE}/{name}"),
        context: Context::from([("iam:awsservicename".to_owned(), SERVICE.to_owned())]),
    }
}

fn elb(call: &mut Call<'_>, params: &Params) -> Vec<Access> {
    let state = call.state;
    if call.action.starts_with("Describe") {
        return vec![call.access("*".to_owned(), None)];
    }
    call.tags = tags_of(params, "Tags.member");
    let mut all = Vec::new();
    if let Some(arn) = elb_made(call, params) {
        all.push(call.access(arn, None));
    } else {
        let keys = ["LoadBalancerArn", "ListenerArn", "TargetGroupArn"];
        let single = keys.iter().filter_map(|key| params.get(key));
        let arns = single
            .map(str::to_owned)
            .chain(params.members("ResourceArns"));
        for arn in arns {
            let tags = elb_tags(state, &arn);
            all.push(call.access(arn, tags));
        }
        let single = params.get("LoadBalancerName").map(str::to_owned);
        let names = params.members("LoadBalancerNames");
        for name in single.into_iter().chain(names) {
            let lb = state.all.classic_load_balancers.get(&name);
            let arn = state.elb_arn(&format!("loadbalancer/{name}"));
            all.push(call.access(arn, lb.map(|lb| &lb.tags)));
        }
    }
    if all.is_empty() {
        all.push(call.access("*".to_owned(), None));
    }
    if call.action == "CreateLoadBalancer" && !state.settings.service_linked_role {
        all.push(service_linked_role(state));
    }
    if call.action.starts_with("Create") && !call.tags.is_empty() {
        let made = all.first().map(|access| access.resource.clone());
        let made = made.unwrap_or_default();
        // A listener's ARN is that of its load balancer with another type and one more part.
        let made = match call.action {
            "CreateListener" => made.replacen(":loadbalancer/", ":listener/", 1) + "/*",
            _ => made,
        };
        all.push(call.tagging("AddTags", made, &call.tags));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::Options;

    fn needs(service: &str, action: &str, form: &str) -> Vec<(String, String)> {
        let state = State::new(Options::default());
        let params = Params::parse(form.as_bytes());
        let all = needed(&state, service, action, &params).into_iter();
        all.map(|access| (access.action, access.resource)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let expected = expected.iter();
        expected
            .map(|(action, resource)| ((*action).to_owned(), (*resource).to_owned()))
            .collect()
    }

    #[test]
    fn a_tagged_creation_needs_the_permission_to_tag() {
        let ec2 = "arn:aws:ec2:us-west-2:123456789012";
        let tags = "&TagSpecification.1.ResourceType=security-group&TagSpecification.1.Tag.1.Key=k&TagSpecification.1.Tag.1.Value=v";
        let create = ("ec2:CreateSecurityGroup", format!("{ec2}:vpc/vpc-1"));
        let group = format!("{ec2}:security-group/*");
        let mut expected = vec![(create.0, &*create.1), (create.0, &*group)];
        assert_eq!(
            needs("ec2", "CreateSecurityGroup", "VpcId=vpc-1"),
            pairs(&expected)
        );
        expected.push(("ec2:CreateTags", &group));
        let form = format!("VpcId=vpc-1{tags}");
        assert_eq!(needs("ec2", "CreateSecurityGroup", &form), pairs(&expected));
        let elb = "arn:aws:elasticloadbalancing:us-west-2:123456789012";
        let listener = format!("LoadBalancerArn={elb}:loadbalancer/net/a/1&Tags.member.1.Key=k");
        assert_eq!(
            needs("elasticloadbalancing", "CreateListener", &listener),
            pairs(&[
                (
                    "elasticloadbalancing:CreateListener",
                    &format!("{elb}:loadbalancer/net/a/1")
                ),
                (
                    "elasticloadbalancing:AddTags",
                    &format!("{elb}:listener/net/a/1/*")
                ),
            ])
        );
        let classic = "LoadBalancerName=a&Tags.member.1.Key=k";
        let arn = format!("{elb}:loadbalancer/a");
        assert_eq!(
            needs("elasticloadbalancing", "CreateLoadBalancer", classic),
            pairs(&[
                ("elasticloadbalancing:CreateLoadBalancer", &arn),
                ("elasticloadbalancing:AddTags", &arn),
            ])
        );
    }

    #[test]
    fn readings_concern_no_resource_and_an_identity_needs_no_permission() {
        let star = |action: &str| vec![(action.to_owned(), "*".to_owned())];
        assert_eq!(
            needs("ec2", "DescribeInstances", "InstanceId.1=i-1"),
            star("ec2:DescribeInstances")
        );
        assert_eq!(
            needs(
                "elasticloadbalancing",
                "DescribeTags",
                "LoadBalancerNames.member.1=a"
            ),
            star("elasticloadbalancing:DescribeTags")
        );
        assert!(needs("sts", "GetCallerIdentity", "").is_empty());
        assert!(needs("sts", "AssumeRoleWithWebIdentity", "RoleArn=r").is_empty());
        assert_eq!(
            needs("sts", "AssumeRole", "RoleArn=r"),
            pairs(&[("sts:AssumeRole", "r")])
        );
    }
}
