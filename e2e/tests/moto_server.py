"""moto as an independent AWS for the integration tests.

Starts moto's threaded server with the few corrections below, makes the machines of a cluster and
prints what it made as one line of JSON. Besides the AWS API it serves

  GET  /_calls              calls by action so far (those of this script are not counted)
  GET  /_state              what is there of load balancers and security group rules, as JSON
  POST /_terminate/<id>     terminates a machine

Each correction says in one line what AWS does and moto does not.
"""

import argparse
import io
import json
import os
import sys
import threading
import time
import urllib.parse
from collections import Counter

os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # saves seconds at the start

import boto3
from botocore.config import Config
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend
from moto.ec2.responses import EC2Response
from moto.elbv2 import models as elbv2
from moto.elbv2.exceptions import (
    DuplicateListenerError,
    DuplicateLoadBalancerName,
    TargetGroupNotFoundError,
    TargetNotRunning,
)
from moto.moto_server.threaded_moto_server import ThreadedMotoServer
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

REGION = "us-west-2"
NETWORK_PROTOCOLS = ("TCP", "UDP", "TCP_UDP", "TLS")
OWN_AGENT = "ccm-bench"


def patch_load_balancers():
    create = elbv2.ELBv2Backend.create_load_balancer

    def create_load_balancer(self, name, *args, tags=None, **kwargs):
        # AWS: a name is unique in account and region.
        if any(lb.name == name for lb in self.load_balancers.values()):
            raise DuplicateLoadBalancerName()
        lb = create(self, name, *args, tags=None, **kwargs)
        if lb.type == "network":
            # AWS: the switch of the access logs is among the attributes from the start.
            lb.attrs["access_logs.s3.enabled"] = "false"
            # AWS: the ARN of a network load balancer says "net".
            del self.load_balancers[lb.arn]
            lb.arn = lb.arn.replace("/app/", "/net/")
            self.load_balancers[lb.arn] = lb
        # AWS: the DNS name of v2 load balancers has the region behind "elb".
        suffix = lb.arn.rsplit("/", 1)[1]
        lb.dns_name = f"{name}-{suffix}.elb.{self.region_name}.amazonaws.com"
        # AWS: internet-facing unless said otherwise.
        lb.scheme = lb.scheme or "internet-facing"
        self.tagging_service.tag_resource(lb.arn, tags)
        return lb

    elbv2.ELBv2Backend.create_load_balancer = create_load_balancer

    def add_tags(self, resource_arns, tags):
        # AWS: 50 tags, not 10.
        for arn in resource_arns:
            self._get_resource_by_arn(arn)
            self.tagging_service.tag_resource(arn, tags)

    elbv2.ELBv2Backend.add_tags = add_tags


def forwards_to(listener):
    """The target groups of a listener's default action."""
    for action in listener.default_actions:
        data = action.data
        if data.get("TargetGroupArn"):
            yield data["TargetGroupArn"]
        for group in data.get("ForwardConfig", {}).get("TargetGroups", []):
            yield group["TargetGroupArn"]


def patch_listeners():
    create = elbv2.ELBv2Backend.create_listener
    modify = elbv2.ELBv2Backend.modify_listener
    describe = elbv2.ELBv2Backend.describe_target_groups

    def create_listener(self, load_balancer_arn, protocol, port, *args, **kwargs):
        lb = self.load_balancers.get(load_balancer_arn)
        # AWS: a port has one listener.
        if lb and any(str(one.port) == str(port) for one in lb.listeners.values()):
            raise DuplicateListenerError()
        listener = create(self, load_balancer_arn, protocol, port, *args, **kwargs)
        if listener.protocol not in ("TLS", "HTTPS"):
            # AWS: only TLS listeners have a policy.
            listener.ssl_policy = None
        return listener

    def modify_listener(self, arn, port=None, protocol=None, *args, **kwargs):
        # AWS: every protocol of a network load balancer can be set.
        network = protocol in NETWORK_PROTOCOLS
        listener = modify(self, arn, port, None if network else protocol, *args, **kwargs)
        if network:
            listener.protocol = protocol
        if listener.protocol not in ("TLS", "HTTPS"):
            listener.ssl_policy = None
        return listener

    def describe_target_groups(self, load_balancer_arn, target_group_arns, names):
        # AWS: a target group belongs to the load balancers whose listeners forward to it now.
        for group in self.target_groups.values():
            group.load_balancer_arns = [
                lb.arn
                for lb in self.load_balancers.values()
                if any(group.arn in forwards_to(one) for one in lb.listeners.values())
            ]
        try:
            return describe(self, load_balancer_arn, target_group_arns, names)
        except TargetGroupNotFoundError:
            if load_balancer_arn:
                # AWS: a load balancer without target groups has an empty list of them.
                return []
            raise

    elbv2.ELBv2Backend.create_listener = create_listener
    elbv2.ELBv2Backend.modify_listener = modify_listener
    elbv2.ELBv2Backend.describe_target_groups = describe_target_groups


def patch_target_groups():
    init = elbv2.FakeTargetGroup.__init__

    def __init__(self, *args, **kwargs):
        init(self, *args, **kwargs)
        if self.protocol in NETWORK_PROTOCOLS:
            # AWS: the attributes of a network target group are there from the start.
            self.attributes = {
                "deregistration_delay.timeout_seconds": "300",
                "deregistration_delay.connection_termination.enabled": "false",
                "stickiness.enabled": "false",
                "stickiness.type": "source_ip",
                "preserve_client_ip.enabled": "true",
                "proxy_protocol_v2.enabled": "false",
                "load_balancing.cross_zone.enabled": "use_load_balancer_configuration",
            }

    def key(self, target):
        return (target["Id"], str(target.get("Port") or self.port))

    def register(self, targets):
        # AWS: a target is a machine and a port; one machine may be in a group with several ports.
        for target in targets:
            instance = self.ec2_backend.get_instance_by_id(target["Id"])
            if instance and instance.state != "running":
                raise TargetNotRunning(instance_id=target["Id"])
        for target in targets:
            name = key(self, target)
            self.targets[name] = {"Id": name[0], "Port": name[1]}

    def deregister(self, targets):
        # AWS: deregistering what is not registered is no error; without a port all ports go.
        for target in targets:
            for name in list(self.targets):
                if name[0] == target["Id"] and target.get("Port") in (None, "", name[1], int(name[1])):
                    del self.targets[name]

    def deregister_terminated_instances(self, instance_ids):
        for name in list(self.targets):
            if name[0] in instance_ids:
                del self.targets[name]

    def health_for(self, target, ec2_backend):
        name = key(self, target)
        if name in self.targets:
            return elbv2.FakeHealthStatus(name[0], name[1], self.health_check_port, "healthy")
        return elbv2.FakeHealthStatus(
            name[0], name[1], self.health_check_port, "unused", "Target.NotRegistered", "Target is not registered"
        )

    elbv2.FakeTargetGroup.__init__ = __init__
    elbv2.FakeTargetGroup.register = register
    elbv2.FakeTargetGroup.deregister = deregister
    elbv2.FakeTargetGroup.deregister_terminated_instances = deregister_terminated_instances
    elbv2.FakeTargetGroup.health_for = health_for


def patch_ec2():
    def describe_instance_topology(self):
        # AWS: most machine types have no topology.
        raise EC2ClientError("UnsupportedOperation", "The functionality you requested is not supported.")

    EC2Response.describe_instance_topology = describe_instance_topology
    describe = EC2Backend.get_all_network_interfaces

    def get_all_network_interfaces(self, eni_ids=None, filters=None):
        # AWS: interfaces can be selected by the state of their attachment.
        filters = dict(filters or {})
        wanted = filters.pop("attachment.status", None)
        found = describe(self, eni_ids, filters)
        if wanted and "attached" in wanted:
            found = [eni for eni in found if eni.instance]
        return found

    EC2Backend.get_all_network_interfaces = get_all_network_interfaces


def client(name, url):
    return boto3.client(
        name,
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(user_agent_extra=OWN_AGENT, retries={"max_attempts": 1}),
    )


def set_up(url, cluster, machines):
    """A VPC with two public subnets, a node security group and the machines of a cluster."""
    ec2 = client("ec2", url)

    def tags(kind, name):
        owned = [{"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"}, {"Key": "Name", "Value": name}]
        return [{"ResourceType": kind, "Tags": owned}]

    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=tags("vpc", "vpc"))["Vpc"]["VpcId"]
    ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    mains = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["RouteTables"]
    ec2.create_route(
        RouteTableId=mains[0]["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway
    )
    subnets = []
    for index, zone in enumerate(("a", "b")):
        subnet = ec2.create_subnet(
            VpcId=vpc,
            CidrBlock=f"10.0.{index}.0/24",
            AvailabilityZone=REGION + zone,
            TagSpecifications=tags("subnet", f"public-{zone}"),
        )["Subnet"]["SubnetId"]
        subnets.append(subnet)
    group = ec2.create_security_group(
        GroupName="nodes", Description="nodes", VpcId=vpc, TagSpecifications=tags("security-group", "nodes")
    )["GroupId"]
    made = []
    for index in range(machines):
        instance = ec2.run_instances(
            ImageId="ami-12345678",
            InstanceType="m5.large",
            MinCount=1,
            MaxCount=1,
            SubnetId=subnets[index % len(subnets)],
            SecurityGroupIds=[group],
            TagSpecifications=tags("instance", f"node-{index}"),
        )["Instances"][0]
        made.append(instance["InstanceId"])
    described = ec2.describe_instances(InstanceIds=made)
    by_id = {i["InstanceId"]: i for r in described["Reservations"] for i in r["Instances"]}
    return {
        "vpc": vpc,
        "subnets": subnets,
        "group": group,
        "machines": [
            {
                "id": one,
                "name": by_id[one]["PrivateDnsName"],
                "ip": by_id[one]["PrivateIpAddress"],
                "zone": by_id[one]["Placement"]["AvailabilityZone"],
            }
            for one in made
        ],
    }


def state(url):
    """Load balancers, listeners, target groups and rules of all security groups but the default ones."""
    ec2, elb = client("ec2", url), client("elbv2", url)
    listeners, balancers, groups = [], [], []
    for lb in elb.describe_load_balancers()["LoadBalancers"]:
        tags = elb.describe_tags(ResourceArns=[lb["LoadBalancerArn"]])["TagDescriptions"][0]["Tags"]
        balancers.append(
            {
                "name": lb["LoadBalancerName"],
                "type": lb["Type"],
                "scheme": lb["Scheme"],
                "dns": lb["DNSName"],
                "subnets": sorted(zone["SubnetId"] for zone in lb["AvailabilityZones"]),
                "tags": {tag["Key"]: tag["Value"] for tag in tags},
            }
        )
        for one in elb.describe_listeners(LoadBalancerArn=lb["LoadBalancerArn"])["Listeners"]:
            listeners.append(
                {"port": one["Port"], "protocol": one["Protocol"], "to": one["DefaultActions"][0]["TargetGroupArn"]}
            )
    for group in elb.describe_target_groups()["TargetGroups"]:
        health = elb.describe_target_health(TargetGroupArn=group["TargetGroupArn"])["TargetHealthDescriptions"]
        groups.append(
            {
                "arn": group["TargetGroupArn"],
                "port": group["Port"],
                "protocol": group["Protocol"],
                "targets": sorted([t["Target"]["Id"], int(t["Target"]["Port"])] for t in health),
            }
        )
    rules = []
    for group in ec2.describe_security_groups()["SecurityGroups"]:
        for rule in group["IpPermissions"]:
            for source in rule["IpRanges"]:
                rules.append(
                    {
                        "group": group["GroupId"],
                        "protocol": rule["IpProtocol"],
                        "from": rule.get("FromPort"),
                        "to": rule.get("ToPort"),
                        "cidr": source["CidrIp"],
                        "description": source.get("Description", ""),
                    }
                )
    return {"load_balancers": balancers, "listeners": listeners, "target_groups": groups, "rules": rules}


class Counting:
    """Counts the calls by action and answers the paths of the tests."""

    def __init__(self, app, url):
        self.app, self.url = app, url
        self.counts, self.lock = Counter(), threading.Lock()

    def __call__(self, environ, start_response):
        path = environ.get("PATH_INFO", "")
        if path.startswith("/_"):
            return self.own(path, start_response)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = io.BytesIO(body)
        if OWN_AGENT not in environ.get("HTTP_USER_AGENT", ""):
            fields = urllib.parse.parse_qs(body.decode("utf-8", "replace"))
            with self.lock:
                self.counts[fields.get("Action", ["?"])[0]] += 1
        return self.app(environ, start_response)

    def own(self, path, start_response):
        if path == "/_calls":
            with self.lock:
                answer = dict(self.counts)
        elif path == "/_state":
            answer = state(self.url)
        elif path.startswith("/_terminate/"):
            client("ec2", self.url).terminate_instances(InstanceIds=[path.rsplit("/", 1)[1]])
            answer = {}
        else:
            start_response("404 Not Found", [("Content-Length", "0")])
            return [b""]
        text = json.dumps(answer).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
        return [text]


class Server(ThreadedMotoServer):
    """moto's server behind the counter."""

    def _server_entry(self):
        url = f"http://{self._ip_address}:{self._port}"
        app = Counting(DomainDispatcherApplication(create_backend_app), url)
        self._server = make_server(
            self._ip_address, self._port, app, threaded=True, request_handler=MotoRequestHandler
        )
        self._server_ready_event.set()
        self._server.serve_forever()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--setup", nargs=2, metavar=("CLUSTER", "MACHINES"), required=True)
    args = parser.parse_args()
    patch_load_balancers()
    patch_listeners()
    patch_target_groups()
    patch_ec2()
    Server("127.0.0.1", args.port, verbose=False).start()
    cluster, machines = args.setup
    made = set_up(f"http://127.0.0.1:{args.port}", cluster, int(machines))
    print(json.dumps(made), flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
