"""Asks an AWS endpoint with boto3 and prints what it answers as JSON.

Usage: boto3_check.py ENDPOINT show LOAD_BALANCER
       boto3_check.py ENDPOINT run SUBNET SECURITY_GROUP
       boto3_check.py ENDPOINT terminate INSTANCE
"""

import json
import sys

import boto3
from botocore.config import Config


def client(service, endpoint):
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-west-2",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"max_attempts": 1}),
    )


def show(endpoint, name):
    elb = client("elbv2", endpoint)
    ec2 = client("ec2", endpoint)
    lb = elb.describe_load_balancers(Names=[name])["LoadBalancers"][0]
    arn = lb["LoadBalancerArn"]
    tags = elb.describe_tags(ResourceArns=[arn])["TagDescriptions"][0]["Tags"]
    targets = {}
    for listener in elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]:
        group = listener["DefaultActions"][0]["TargetGroupArn"]
        health = elb.describe_target_health(TargetGroupArn=group)
        targets[str(listener["Port"])] = {
            target["Target"]["Id"]: target["TargetHealth"]["State"]
            for target in health["TargetHealthDescriptions"]
        }
    # EC2 takes no smaller pages than five.
    pages = list(
        ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5})
    )
    subnets = list(
        ec2.get_paginator("describe_subnets").paginate(PaginationConfig={"PageSize": 5})
    )
    groups = list(
        elb.get_paginator("describe_target_groups").paginate(PaginationConfig={"PageSize": 1})
    )
    try:
        elb.describe_load_balancers(Names=["no-such-load-balancer"])
        unknown = "found"
    except elb.exceptions.LoadBalancerNotFoundException as error:
        unknown = error.response["Error"]["Code"]
    return {
        "dns_name": lb["DNSName"],
        "type": lb["Type"],
        "tags": {tag["Key"]: tag["Value"] for tag in tags},
        "targets": targets,
        "instances": sorted(
            instance["InstanceId"]
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ),
        "subnets": sum(len(page["Subnets"]) for page in subnets),
        "pages": len(groups),
        "unknown": unknown,
    }


def run(endpoint, subnet, group):
    ec2 = client("ec2", endpoint)
    instance = ec2.run_instances(
        ImageId="ami-12345678",
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        SubnetId=subnet,
        SecurityGroupIds=[group],
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [{"Key": "kubernetes.io/cluster/kite", "Value": "owned"}],
            }
        ],
    )["Instances"][0]
    return {"id": instance["InstanceId"], "private_dns_name": instance["PrivateDnsName"]}


def terminate(endpoint, instance):
    answer = client("ec2", endpoint).terminate_instances(InstanceIds=[instance])
    return {"state": answer["TerminatingInstances"][0]["CurrentState"]["Name"]}


COMMANDS = {"show": show, "run": run, "terminate": terminate}

if __name__ == "__main__":
    endpoint, command, *rest = sys.argv[1:]
    json.dump(COMMANDS[command](endpoint, *rest), sys.stdout)
