"""Checks a running cloudsim against the AWS API descriptions that botocore carries.

Usage: botocore_check.py http://127.0.0.1:PORT

Every action that the emulator claims to implement is called through botocore, so that the request is
the one of a real client. botocore's parser is lenient: it drops what it does not know. The raw answer
is therefore also walked along the output shape: every element must be a member that the shape knows,
of the right type, with a value that the shape allows.
"""

import datetime
import json
import sys
import traceback
import urllib.request
import xml.etree.ElementTree as ElementTree

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError

BASE = sys.argv[1]
REGION = "us-west-2"
# EC2 sends this with actions whose description has no output.
WITHOUT_OUTPUT = {"return", "requestId"}

problems = []
seen = set()


def local(tag):
    return tag.rsplit("}", 1)[-1]


def check_scalar(shape, text, where):
    kind = shape.type_name
    try:
        if kind in ("integer", "long"):
            int(text)
        elif kind in ("float", "double"):
            float(text)
        elif kind == "boolean":
            assert text in ("true", "false")
        elif kind == "timestamp":
            datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
        elif kind == "string":
            allowed = getattr(shape, "enum", None)
            if allowed and text and text not in allowed:
                problems.append(f"{where}: {text!r} is not one of {allowed[:8]}")
        else:
            problems.append(f"{where}: type {kind} is not checked")
    except (AssertionError, ValueError):
        problems.append(f"{where}: {text!r} is not a {kind}")


def check(shape, element, where):
    if shape.type_name == "structure":
        members = {}
        for name, member in shape.members.items():
            members[member.serialization.get("name", name)] = member
        found = set()
        for child in element:
            tag = local(child.tag)
            if tag not in members:
                problems.append(f"{where}: element <{tag}> is not in the description of {shape.name}")
                continue
            if tag in found:
                problems.append(f"{where}: element <{tag}> comes twice")
            found.add(tag)
            check(members[tag], child, f"{where}.{tag}")
    elif shape.type_name == "list":
        item = shape.member.serialization.get("name", "member")
        for child in element:
            if local(child.tag) != item:
                problems.append(f"{where}: list item <{local(child.tag)}> should be <{item}>")
            else:
                check(shape.member, child, f"{where}[]")
    else:
        if len(element):
            problems.append(f"{where}: {shape.type_name} with child elements")
        check_scalar(shape, element.text or "", where)


def on_answer(operation_model, response_dict, **_):
    """Walks the raw answer before botocore parses it."""
    service = operation_model.service_model
    where = f"{service.service_name}:{operation_model.name}"
    root = ElementTree.fromstring(response_dict["body"])
    if response_dict["status_code"] >= 300:
        return
    seen.add(where)
    if local(root.tag) != f"{operation_model.name}Response":
        problems.append(f"{where}: root is <{local(root.tag)}>")
    namespace = service.metadata["xmlNamespace"]
    if not root.tag.startswith("{" + namespace.rstrip("/")):
        problems.append(f"{where}: namespace of {root.tag} is not {namespace}")
    children = {local(child.tag): child for child in root}
    output = operation_model.output_shape
    if service.service_name == "ec2":
        if not children.get("requestId", root).text:
            problems.append(f"{where}: no requestId")
        content = [child for child in root if local(child.tag) != "requestId"]
        if output is None:
            for child in content:
                if local(child.tag) not in WITHOUT_OUTPUT:
                    problems.append(f"{where}: unexpected <{local(child.tag)}>")
            return
        holder = ElementTree.Element("answer")
        # EC2 really sends <return> with CreateSecurityGroup, though the description leaves it out.
        known = {member.serialization.get("name", name) for name, member in output.members.items()}
        holder.extend(child for child in content if local(child.tag) != "return" or "return" in known)
        check(output, holder, where)
        return
    if set(children) != {f"{operation_model.name}Result", "ResponseMetadata"}:
        problems.append(f"{where}: children of the root are {sorted(children)}")
        return
    if not children["ResponseMetadata"].findtext("{*}RequestId"):
        problems.append(f"{where}: no RequestId")
    result = children[f"{operation_model.name}Result"]
    if output is not None:
        check(output, result, where)


def make_client(name):
    config = Config(retries={"total_max_attempts": 1}, signature_version="v4")
    created = session.create_client(
        name,
        region_name=REGION,
        endpoint_url=BASE,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=config,
    )
    created.meta.events.register(f"before-parse.{name}", on_answer)
    return created


def fails(code, call, **params):
    """The call must fail with exactly this code."""
    try:
        call(**params)
    except ClientError as error:
        got = error.response["Error"]["Code"]
        if got != code or not error.response["Error"]["Message"]:
            problems.append(f"expected error {code}, got {error.response['Error']}")
        if not error.response["ResponseMetadata"].get("RequestId"):
            problems.append(f"error {code} without a request id")
        return
    problems.append(f"expected error {code} of {call.__name__}, got success")


def same(what, got, want):
    if got != want:
        problems.append(f"{what}: {got!r} instead of {want!r}")


def specify(kind, **tags):
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}]


session = botocore.session.get_session()
ec2, elb, classic, sts = (make_client(name) for name in ("ec2", "elbv2", "elb", "sts"))


def network():
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=specify("vpc", Name="main"))["Vpc"]["VpcId"]
    same("vpcs", ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Tags"], [{"Key": "Name", "Value": "main"}])
    fails("InvalidVpcID.NotFound", ec2.describe_vpcs, VpcIds=["vpc-00000000000000000"])
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    same("zone id", zones[0]["ZoneId"], "usw2-az1")
    subnets = []
    for number in range(7):
        made = ec2.create_subnet(
            VpcId=vpc,
            CidrBlock=f"10.0.{number}.0/24",
            AvailabilityZone=zones[number % 3]["ZoneName"],
            TagSpecifications=specify("subnet", Name=f"s{number}"),
            **({"Ipv6CidrBlock": f"2001:db8:0:{number}::/64"} if number < 3 else {}),
        )
        subnets.append(made["Subnet"]["SubnetId"])
    pages = list(ec2.get_paginator("describe_subnets").paginate(PaginationConfig={"PageSize": 5}))
    same("subnet pages", [len(page["Subnets"]) for page in pages], [5, 2])
    by_tag = ec2.describe_subnets(Filters=[{"Name": "tag:Name", "Values": ["s3"]}])["Subnets"]
    same("subnet by tag", [subnet["SubnetId"] for subnet in by_tag], [subnets[3]])
    fails("InvalidSubnetID.NotFound", ec2.describe_subnets, SubnetIds=["subnet-0123"])
    fails("InvalidSubnet.Conflict", ec2.create_subnet, VpcId=vpc, CidrBlock="10.0.0.0/24")
    gateway = ec2.create_internet_gateway(TagSpecifications=specify("internet-gateway", Name="gw"))
    gateway = gateway["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc, TagSpecifications=specify("route-table", Name="public"))
    table = table["RouteTable"]["RouteTableId"]
    same("route", ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)["Return"], True)
    fails("RouteAlreadyExists", ec2.create_route, RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    for subnet in subnets[:3]:
        ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    filters = [{"Name": "association.subnet-id", "Values": [subnets[0]]}]
    tables = ec2.describe_route_tables(Filters=filters)["RouteTables"]
    same("table of the subnet", [each["RouteTableId"] for each in tables], [table])
    main = ec2.describe_route_tables(Filters=[{"Name": "association.main", "Values": ["true"]}])["RouteTables"]
    same("main table", main[0]["Associations"][0]["Main"], True)
    fails("InvalidParameterValue", ec2.describe_route_tables, Filters=[{"Name": "nonsense", "Values": ["x"]}])
    return vpc, subnets


def groups(vpc):
    def make(name):
        made = ec2.create_security_group(
            VpcId=vpc, GroupName=name, Description="d", TagSpecifications=specify("security-group", Name=name)
        )
        return made["GroupId"]

    first, second = make("one"), make("two")
    fails("InvalidGroup.Duplicate", ec2.create_security_group, VpcId=vpc, GroupName="one", Description="d")
    permissions = [
        {
            "IpProtocol": "tcp",
            "FromPort": 80,
            "ToPort": 81,
            "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "inside"}, {"CidrIp": "192.0.2.0/24"}],
            "Ipv6Ranges": [{"CidrIpv6": "2001:db8::/32"}],
            "UserIdGroupPairs": [{"GroupId": second, "Description": "others"}],
            "PrefixListIds": [{"PrefixListId": "pl-0123"}],
        },
        {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": second}]},
        {"IpProtocol": "icmp", "FromPort": 3, "ToPort": 4, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]},
    ]
    added = ec2.authorize_security_group_ingress(GroupId=first, IpPermissions=permissions)["SecurityGroupRules"]
    same("added rules", len(added), 7)
    fails("InvalidPermission.Duplicate", ec2.authorize_security_group_ingress, GroupId=first, IpPermissions=permissions[:1])
    filters = [{"Name": "ip-permission.group-id", "Values": [second]}, {"Name": "ip-permission.cidr", "Values": ["10.*"]}]
    found = ec2.describe_security_groups(Filters=filters)["SecurityGroups"]
    same("groups by filter", [group["GroupId"] for group in found], [first])
    shown = {each["IpProtocol"]: each for each in found[0]["IpPermissions"]}
    same("permissions", sorted(shown), ["-1", "icmp", "tcp"])
    same("ranges", shown["tcp"]["IpRanges"], permissions[0]["IpRanges"])
    permissions[2]["IpRanges"][0]["Description"] = "new"
    ec2.update_security_group_rule_descriptions_ingress(GroupId=first, IpPermissions=permissions[2:])
    found = ec2.describe_security_groups(GroupIds=[first])["SecurityGroups"][0]["IpPermissions"]
    found = next(each for each in found if each["IpProtocol"] == "icmp")
    same("description", found["IpRanges"][0]["Description"], "new")
    fails("DependencyViolation", ec2.delete_security_group, GroupId=second)
    revoked = ec2.revoke_security_group_ingress(GroupId=first, IpPermissions=permissions)
    same("revoked rules", len(revoked["RevokedSecurityGroupRules"]), 7)
    fails("InvalidPermission.NotFound", ec2.revoke_security_group_ingress, GroupId=first, IpPermissions=permissions[:1])
    ec2.delete_security_group(GroupId=second)
    fails("InvalidGroup.NotFound", ec2.delete_security_group, GroupId=second)
    fails("InvalidGroupId.Malformed", ec2.describe_security_groups, GroupIds=["x"])
    return first


def instances(subnets, group):
    launched = ec2.run_instances(
        ImageId="ami-1",
        InstanceType="p5.48xlarge",
        MinCount=2,
        MaxCount=2,
        InstanceMarketOptions={"MarketType": "spot"},
        NetworkInterfaces=[
            {"DeviceIndex": 0, "SubnetId": subnets[0], "Groups": [group], "AssociatePublicIpAddress": True}
        ],
        TagSpecifications=specify("instance", Name="node", role="worker"),
    )["Instances"]
    ids = [instance["InstanceId"] for instance in launched]
    same("state", launched[0]["State"], {"Code": 0, "Name": "pending"})
    filters = [{"Name": "private-dns-name", "Values": [launched[0]["PrivateDnsName"]]}]
    found = ec2.describe_instances(Filters=filters, MaxResults=1000)["Reservations"]
    shown = found[0]["Instances"][0]
    same("found", shown["InstanceId"], ids[0])
    same("state", shown["State"], {"Code": 16, "Name": "running"})
    same("lifecycle", shown["InstanceLifecycle"], "spot")
    same("group", shown["SecurityGroups"], [{"GroupId": group, "GroupName": "one"}])
    same("interface", shown["NetworkInterfaces"][0]["Attachment"]["DeviceIndex"], 0)
    same("both", sum(len(each["Instances"]) for each in ec2.describe_instances(InstanceIds=ids)["Reservations"]), 2)
    fails("InvalidInstanceID.NotFound", ec2.describe_instances, InstanceIds=[ids[0], "i-0123"])
    fails("InvalidInstanceID.Malformed", ec2.describe_instances, InstanceIds=["nonsense"])
    fails("InvalidParameterCombination", ec2.describe_instances, InstanceIds=ids, MaxResults=100)
    topology = ec2.describe_instance_topology(InstanceIds=ids)["Instances"]
    same("network nodes", len(topology[0]["NetworkNodes"]), 3)
    filters = [{"Name": "attachment.status", "Values": ["attached"]}, {"Name": "attachment.instance-id", "Values": ids}]
    same("interfaces", len(ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]), 2)
    ec2.create_tags(Resources=ids, Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    ec2.delete_tags(Resources=ids, Tags=[{"Key": "a", "Value": "other"}, {"Key": "b"}])
    tags = ec2.describe_instances(InstanceIds=ids[:1])["Reservations"][0]["Instances"][0]["Tags"]
    same("tags", {tag["Key"] for tag in tags}, {"Name", "role", "a"})
    fails("InvalidInstanceID.NotFound", ec2.create_tags, Resources=["i-0123"], Tags=[{"Key": "a", "Value": "1"}])
    fails("InvalidID", ec2.delete_tags, Resources=["nonsense"], Tags=[{"Key": "a"}])
    ec2.modify_instance_attribute(InstanceId=ids[1], SourceDestCheck={"Value": False})
    fails("IncorrectInstanceState", ec2.modify_instance_attribute, InstanceId=ids[1], InstanceType={"Value": "m5.xlarge"})
    stopping = ec2.stop_instances(InstanceIds=ids[1:])["StoppingInstances"][0]
    same("stopping", stopping["CurrentState"]["Name"], "stopping")
    ec2.modify_instance_attribute(InstanceId=ids[1], InstanceType={"Value": "m5.xlarge"})
    same("starting", ec2.start_instances(InstanceIds=ids[1:])["StartingInstances"][0]["PreviousState"]["Name"], "stopped")
    ec2.terminate_instances(InstanceIds=ids[1:])
    filters = [{"Name": "instance-state-name", "Values": ["terminated"]}]
    same("terminated", len(ec2.describe_instances(Filters=filters)["Reservations"]), 1)
    fails("DryRunOperation", ec2.terminate_instances, InstanceIds=ids[:1], DryRun=True)
    return ids[0]


def load_balancer(vpc, subnets, group, instance):
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=specify("elastic-ip", Name="front"))["AllocationId"]
    same("address", ec2.describe_addresses(AllocationIds=[address])["Addresses"][0]["Domain"], "vpc")
    tag = [{"Key": "owner", "Value": "test"}]
    wanted = dict(
        Name="front",
        Type="network",
        SubnetMappings=[{"SubnetId": subnets[0], "AllocationId": address}, {"SubnetId": subnets[1]}],
        SecurityGroups=[group],
        Tags=tag,
    )
    lb = elb.create_load_balancer(**wanted)["LoadBalancers"][0]
    arn = lb["LoadBalancerArn"]
    same("scheme", lb["Scheme"], "internet-facing")
    same("state", lb["State"]["Code"], "provisioning")
    same("again", elb.create_load_balancer(**wanted)["LoadBalancers"][0]["LoadBalancerArn"], arn)
    fails("DuplicateLoadBalancerName", elb.create_load_balancer, Name="front", Type="network", Subnets=[subnets[0]])
    fails("ValidationError", elb.create_load_balancer, Name="f" * 33, Type="network", Subnets=[subnets[0]])
    fails("SubnetNotFound", elb.create_load_balancer, Name="x", Type="network", Subnets=["subnet-0123"])
    same("by name", elb.describe_load_balancers(Names=["front"])["LoadBalancers"][0]["DNSName"], lb["DNSName"])
    fails("LoadBalancerNotFound", elb.describe_load_balancers, Names=["front", "back"])
    managed = ec2.describe_addresses(AllocationIds=[address])["Addresses"][0]
    same("service managed", managed["ServiceManaged"], "nlb")
    plain = elb.create_load_balancer(Name="plain", Type="network", Subnets=[subnets[1]])["LoadBalancers"][0]
    pages = list(elb.get_paginator("describe_load_balancers").paginate(PaginationConfig={"PageSize": 1}))
    same("load balancer pages", [len(page["LoadBalancers"]) for page in pages], [1, 1])
    fails("InvalidConfigurationRequest", elb.set_security_groups, LoadBalancerArn=plain["LoadBalancerArn"], SecurityGroups=[group])
    same("groups", elb.set_security_groups(LoadBalancerArn=arn, SecurityGroups=[group])["SecurityGroupIds"], [group])
    zones = elb.set_subnets(LoadBalancerArn=arn, Subnets=subnets[:3])["AvailabilityZones"]
    same("zones", [zone["SubnetId"] for zone in zones], subnets[:3])
    same("type", elb.set_ip_address_type(LoadBalancerArn=arn, IpAddressType="dualstack")["IpAddressType"], "dualstack")
    attributes = elb.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]
    same("cross zone", {each["Key"]: each["Value"] for each in attributes}["load_balancing.cross_zone.enabled"], "false")
    protection = [{"Key": "deletion_protection.enabled", "Value": "true"}]
    elb.modify_load_balancer_attributes(LoadBalancerArn=arn, Attributes=protection)
    fails("OperationNotPermitted", elb.delete_load_balancer, LoadBalancerArn=arn)
    protection[0]["Value"] = "false"
    elb.modify_load_balancer_attributes(LoadBalancerArn=arn, Attributes=protection)

    def target_group(name, protocol, **more):
        made = elb.create_target_group(Name=name, Protocol=protocol, Port=30080, VpcId=vpc, TargetType="instance", **more)
        return made["TargetGroups"][0]["TargetGroupArn"]

    tcp = target_group("tcp", "TCP", Tags=tag, HealthCheckIntervalSeconds=10)
    same("again", target_group("tcp", "TCP", HealthCheckIntervalSeconds=10), tcp)
    http = target_group("http", "TCP", HealthCheckProtocol="HTTP", HealthCheckPath="/healthz", HealthCheckPort="10256")
    udp = target_group("udp", "UDP")
    fails("DuplicateTargetGroupName", elb.create_target_group, Name="tcp", Protocol="UDP", Port=1, VpcId=vpc)
    group = elb.describe_target_groups(Names=["http"])["TargetGroups"][0]
    same("matcher", group["Matcher"], {"HttpCode": "200-399"})
    same("unused", elb.describe_target_groups(LoadBalancerArn=arn)["TargetGroups"], [])
    fails("TargetGroupNotFound", elb.describe_target_groups, Names=["nope"])
    changed = elb.modify_target_group(TargetGroupArn=http, UnhealthyThresholdCount=4, HealthCheckPath="/x")
    same("threshold", changed["TargetGroups"][0]["UnhealthyThresholdCount"], 4)
    fails("InvalidConfigurationRequest", elb.modify_target_group, TargetGroupArn=tcp, HealthCheckProtocol="HTTP")
    attributes = elb.describe_target_group_attributes(TargetGroupArn=tcp)["Attributes"]
    same("preserve", {each["Key"]: each["Value"] for each in attributes}["preserve_client_ip.enabled"], "true")
    delay = [{"Key": "deregistration_delay.timeout_seconds", "Value": "30"}]
    elb.modify_target_group_attributes(TargetGroupArn=tcp, Attributes=delay)
    delay[0]["Key"] = "nonsense"
    fails("InvalidConfigurationRequest", elb.modify_target_group_attributes, TargetGroupArn=tcp, Attributes=delay)

    certificate = [{"CertificateArn": "arn:aws:acm:us-west-2:123456789012:certificate/c"}]
    forward = lambda group: [{"Type": "forward", "TargetGroupArn": group}]
    base = dict(LoadBalancerArn=arn, Port=80, Protocol="TCP")
    listener = elb.create_listener(**base, DefaultActions=forward(tcp), Tags=tag)["Listeners"][0]["ListenerArn"]
    fails("DuplicateListener", elb.create_listener, **base, DefaultActions=forward(http))
    base["Port"] = 443
    fails("IncompatibleProtocols", elb.create_listener, **base, DefaultActions=forward(udp))
    base["Protocol"] = "HTTP"
    fails("UnsupportedProtocol", elb.create_listener, **base, DefaultActions=forward(tcp))
    base["Protocol"] = "TLS"
    fails("ValidationError", elb.create_listener, **base, DefaultActions=forward(tcp))
    tls = elb.create_listener(**base, DefaultActions=forward(tcp), Certificates=certificate, AlpnPolicy=["HTTP2Preferred"])
    same("policy", tls["Listeners"][0]["SslPolicy"], "ELBSecurityPolicy-2016-08")
    listeners = elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]
    same("listeners", sorted(each["Port"] for each in listeners), [80, 443])
    changed = elb.modify_listener(ListenerArn=listener, Port=8080, DefaultActions=forward(http))["Listeners"][0]
    same("action", changed["DefaultActions"][0]["TargetGroupArn"], http)
    used = elb.describe_target_groups(LoadBalancerArn=arn)["TargetGroups"]
    same("used", sorted(each["TargetGroupName"] for each in used), ["http", "tcp"])
    fails("ResourceInUse", elb.delete_target_group, TargetGroupArn=http)

    targets = [{"Id": instance, "Port": 30080}, {"Id": instance, "Port": 30081}]
    elb.register_targets(TargetGroupArn=http, Targets=targets)
    fails("InvalidTarget", elb.register_targets, TargetGroupArn=http, Targets=[{"Id": "i-0123"}])
    elb.deregister_targets(TargetGroupArn=http, Targets=targets[1:])
    health = elb.describe_target_health(TargetGroupArn=http)["TargetHealthDescriptions"]
    same("health", [each["TargetHealth"]["State"] for each in health], ["healthy", "draining"])

    fails("ValidationError", elb.add_tags, ResourceArns=[arn, http], Tags=[{"Key": "k", "Value": "v"}])
    for each in (arn, listener, http):
        elb.add_tags(ResourceArns=[each], Tags=[{"Key": "k", "Value": "v"}])
    elb.remove_tags(ResourceArns=[arn], TagKeys=["owner"])
    described = elb.describe_tags(ResourceArns=[arn, listener, http])["TagDescriptions"]
    tags = [{tag["Key"] for tag in each["Tags"]} for each in described]
    same("tags", tags, [{"k"}, {"k", "owner"}, {"k"}])
    fails("ListenerNotFound", elb.delete_listener, ListenerArn=listener[:-1])
    elb.delete_listener(ListenerArn=listener)
    elb.delete_target_group(TargetGroupArn=http)
    fails("DependencyViolation", ec2.delete_security_group, GroupId=lb["SecurityGroups"][0])
    elb.delete_load_balancer(LoadBalancerArn=arn)
    elb.delete_load_balancer(LoadBalancerArn=arn)
    fails("LoadBalancerNotFound", elb.describe_listeners, LoadBalancerArn=arn)


def routes(vpc, instance):
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "tag:Name", "Values": ["public"]}]
    table = ec2.describe_route_tables(Filters=filters)["RouteTables"][0]["RouteTableId"]
    v4 = dict(RouteTableId=table, DestinationCidrBlock="100.64.0.0/24")
    v6 = dict(RouteTableId=table, DestinationIpv6CidrBlock="2001:db8:9::/64")
    filters = [{"Name": "attachment.instance-id", "Values": [instance]}]
    interface = ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"][0]["NetworkInterfaceId"]
    ec2.modify_network_interface_attribute(NetworkInterfaceId=interface, SourceDestCheck={"Value": False})
    ec2.create_route(**v4, InstanceId=instance)
    ec2.create_route(**v6, NetworkInterfaceId=interface)
    shown = ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["Routes"]
    ends = {(each["InstanceId"], each["NetworkInterfaceId"]) for each in shown if "InstanceId" in each}
    same("ends of the routes", ends, {(instance, interface)})
    ec2.replace_route(**v4, NetworkInterfaceId=interface)
    for route in (v4, v6):
        ec2.delete_route(**route)
        fails("InvalidRoute.NotFound", ec2.delete_route, **route)
    fails("InvalidParameterValue", ec2.replace_route, **v4, InstanceId=instance)


def classic_load_balancer(subnets, group, instance):
    certificate = "arn:aws:acm:us-west-2:123456789012:certificate/c"
    tcp = dict(Protocol="tcp", LoadBalancerPort=80, InstanceProtocol="tcp", InstancePort=30080)
    ssl = dict(Protocol="ssl", LoadBalancerPort=443, InstanceProtocol="tcp", InstancePort=30443, SSLCertificateId=certificate)
    wanted = dict(
        LoadBalancerName="old",
        Listeners=[tcp],
        Subnets=subnets[:2],
        SecurityGroups=[group],
        Tags=[{"Key": "owner", "Value": "test"}],
    )
    name = dict(LoadBalancerName="old")
    made = classic.create_load_balancer(**wanted)["DNSName"]
    same("again", classic.create_load_balancer(**wanted)["DNSName"], made)
    fails("DuplicateLoadBalancerName", classic.create_load_balancer, **{**wanted, "Scheme": "internal"})
    fails("DuplicateTagKeys", classic.create_load_balancer, **{**wanted, "Tags": wanted["Tags"] * 2})
    fails("SubnetNotFound", classic.create_load_balancer, **{**wanted, "Subnets": ["subnet-0123"]})
    fails("InvalidSecurityGroup", classic.create_load_balancer, **{**wanted, "SecurityGroups": ["sg-0123"]})
    fails("LoadBalancerNotFound", classic.describe_load_balancers, LoadBalancerNames=["old", "x"])

    classic.create_load_balancer_listeners(**name, Listeners=[ssl])
    fails("DuplicateListener", classic.create_load_balancer_listeners, **name, Listeners=[{**ssl, "InstancePort": 1}])
    fails("CertificateNotFound", classic.create_load_balancer_listeners, **name, Listeners=[{**ssl, "SSLCertificateId": "x"}])
    proxy = dict(**name, PolicyName="proxy", PolicyTypeName="ProxyProtocolPolicyType")
    enabled = [{"AttributeName": "ProxyProtocol", "AttributeValue": "true"}]
    classic.create_load_balancer_policy(**proxy, PolicyAttributes=enabled)
    fails("InvalidConfigurationRequest", classic.create_load_balancer_policy, **{**proxy, "PolicyName": "other"})
    fails("PolicyTypeNotFound", classic.create_load_balancer_policy, **{**proxy, "PolicyTypeName": "x"})
    tls = dict(**name, PolicyName="tls", PolicyTypeName="SSLNegotiationPolicyType")
    reference = [{"AttributeName": "Reference-Security-Policy", "AttributeValue": "ELBSecurityPolicy-TLS-1-2-2017-01"}]
    classic.create_load_balancer_policy(**tls, PolicyAttributes=reference)
    reference[0]["AttributeValue"] = "ELBSecurityPolicy-2016-08"
    fails("DuplicatePolicyName", classic.create_load_balancer_policy, **tls, PolicyAttributes=reference)
    shown = classic.describe_load_balancer_policies(**name, PolicyNames=["proxy"])["PolicyDescriptions"]
    same("policy", shown[0]["PolicyAttributeDescriptions"], enabled)
    fails("PolicyNotFound", classic.describe_load_balancer_policies, **name, PolicyNames=["nope"])
    classic.set_load_balancer_policies_for_backend_server(**name, InstancePort=30080, PolicyNames=["proxy"])
    classic.set_load_balancer_policies_of_listener(**name, LoadBalancerPort=443, PolicyNames=["tls"])
    fails("ListenerNotFound", classic.set_load_balancer_policies_of_listener, **name, LoadBalancerPort=1, PolicyNames=["tls"])

    check = dict(Target="HTTP:10256/healthz", Interval=10, Timeout=5, UnhealthyThreshold=6, HealthyThreshold=2)
    same("health check", classic.configure_health_check(**name, HealthCheck=check)["HealthCheck"], check)
    fails("ValidationError", classic.configure_health_check, **name, HealthCheck={**check, "Target": "HTTP:80"})
    attributes = {
        "ConnectionDraining": {"Enabled": True, "Timeout": 20},
        "AccessLog": {"Enabled": True, "S3BucketName": "logs", "EmitInterval": 5, "S3BucketPrefix": "p"},
    }
    changed = classic.modify_load_balancer_attributes(**name, LoadBalancerAttributes=attributes)
    same("changed attributes", changed["LoadBalancerAttributes"], attributes)
    attributes = classic.describe_load_balancer_attributes(**name)["LoadBalancerAttributes"]
    same("idle timeout", attributes["ConnectionSettings"], {"IdleTimeout": 60})
    same("additional", attributes["AdditionalAttributes"][0]["Key"], "elb.http.desyncmitigationmode")

    same("attached", set(classic.attach_load_balancer_to_subnets(**name, Subnets=[subnets[2]])["Subnets"]), set(subnets[:3]))
    fails("InvalidConfigurationRequest", classic.attach_load_balancer_to_subnets, **name, Subnets=[subnets[3]])
    same("detached", classic.detach_load_balancer_from_subnets(**name, Subnets=subnets[1:3])["Subnets"], [subnets[0]])
    fails("InvalidConfigurationRequest", classic.detach_load_balancer_from_subnets, **name, Subnets=[subnets[0]])
    applied = classic.apply_security_groups_to_load_balancer(**name, SecurityGroups=[group])
    same("applied", applied["SecurityGroups"], [group])
    instances = [{"InstanceId": instance}]
    same("registered", classic.register_instances_with_load_balancer(**name, Instances=instances)["Instances"], instances)
    fails("InvalidInstance", classic.register_instances_with_load_balancer, **name, Instances=[{"InstanceId": "i-0123"}])
    same("health", classic.describe_instance_health(**name)["InstanceStates"][0]["State"], "InService")

    lb = classic.describe_load_balancers(LoadBalancerNames=["old"])["LoadBalancerDescriptions"][0]
    same("name", (lb["DNSName"], lb["Scheme"], lb["Subnets"], lb["Instances"]), (made, "internet-facing", [subnets[0]], instances))
    listeners = {each["Listener"]["LoadBalancerPort"]: each for each in lb["ListenerDescriptions"]}
    same("plain listener", listeners[80]["Listener"]["Protocol"], "TCP")
    same("secure listener", listeners[443]["PolicyNames"], ["tls"])
    same("backend", lb["BackendServerDescriptions"], [{"InstancePort": 30080, "PolicyNames": ["proxy"]}])
    second = {**wanted, "LoadBalancerName": "second", "Subnets": [subnets[1]]}
    classic.create_load_balancer(**second)
    pages = list(classic.get_paginator("describe_load_balancers").paginate(PaginationConfig={"PageSize": 1}))
    same("classic pages", [len(page["LoadBalancerDescriptions"]) for page in pages], [1, 1])
    classic.delete_load_balancer(LoadBalancerName="second")

    classic.add_tags(LoadBalancerNames=["old"], Tags=[{"Key": "k", "Value": "v"}])
    classic.remove_tags(LoadBalancerNames=["old"], Tags=[{"Key": "owner"}])
    tags = classic.describe_tags(LoadBalancerNames=["old"])["TagDescriptions"]
    same("tags", tags, [{"LoadBalancerName": "old", "Tags": [{"Key": "k", "Value": "v"}]}])
    left = classic.deregister_instances_from_load_balancer(**name, Instances=instances)["Instances"]
    same("deregistered", left, [])
    classic.delete_load_balancer_listeners(**name, LoadBalancerPorts=[80, 443])
    fails("DependencyViolation", ec2.delete_security_group, GroupId=group)
    classic.delete_load_balancer(**name)
    classic.delete_load_balancer(**name)
    fails("LoadBalancerNotFound", classic.describe_load_balancer_attributes, **name)


def others():
    same("account", sts.get_caller_identity()["Account"], "123456789012")
    role = "arn:aws:iam::210987654321:role/manager"
    assumed = sts.assume_role(RoleArn=role, RoleSessionName="session")
    same("role", assumed["AssumedRoleUser"]["Arn"], "arn:aws:sts::210987654321:assumed-role/manager/session")
    token = "e30.e30.c2lnbmF0dXJl"
    assumed = sts.assume_role_with_web_identity(RoleArn=role, RoleSessionName="pod", WebIdentityToken=token)
    same("role", assumed["AssumedRoleUser"]["Arn"], "arn:aws:sts::210987654321:assumed-role/manager/pod")
    fails("InvalidIdentityToken", sts.assume_role_with_web_identity, RoleArn=role, RoleSessionName="pod", WebIdentityToken="none")
    same("classic", classic.describe_load_balancers()["LoadBalancerDescriptions"], [])
    fails("LoadBalancerNotFound", classic.describe_load_balancers, LoadBalancerNames=["x"])
    # Anything that is not implemented must be an error that clients understand.
    fails("InvalidAction", ec2.describe_volumes)
    fails("InvalidAction", elb.describe_account_limits)
    fails("InvalidAction", classic.describe_account_limits)


try:
    vpc, subnets = network()
    group = groups(vpc)
    instance = instances(subnets, group)
    load_balancer(vpc, subnets, group, instance)
    routes(vpc, instance)
    classic_load_balancer(subnets, group, instance)
    others()
except Exception:
    # What was found up to here often tells why.
    problems.append(f"the scenario ended early:\n{traceback.format_exc()}")

with urllib.request.urlopen(f"{BASE}/_sim/actions") as answer:
    actions = set(json.load(answer))
for action in sorted(actions - seen):
    problems.append(f"{action} is implemented but was not checked here with success")
for action in sorted(seen - actions):
    problems.append(f"{action} is answered but not listed as implemented")

for problem in problems:
    print(problem)
print(f"{len(seen)} actions checked, {len(problems)} problems")
sys.exit(1 if problems else 0)
