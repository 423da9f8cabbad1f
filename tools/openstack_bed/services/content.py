"""Fills a new bed: `catalogue` before the services start, `base` after.

    python -m tools.openstack_bed.services.content catalogue SERVICE=PORT …
    python -m tools.openstack_bed.services.content base

Runs in the virtual environment of the bed, with the variables OS_* of the administrator.
"""

import os
import sys
from typing import Any

import openstack

DOMAIN = "default"
REGION = "RegionOne"
USERS = ("nova", "placement", "neutron", "glance", "cinder", "octavia")
CATALOGUE = {
    "placement": [("placement", "")],
    "glance": [("image", "")],
    "neutron": [("network", "")],
    "nova": [("compute", "/v2.1")],
    "octavia": [("load-balancer", "")],
    "cinder": [("volumev3", "/v3/%(project_id)s"), ("block-storage", "/v3/%(project_id)s")],
}
EXTERNAL_NETWORK = "public"
EXTERNAL_RANGE = "198.18.0.0/16"
FLAVORS = {"m1": 1, "m1.large": 2}


def catalogue(cloud: Any, ports: dict[str, str]) -> None:
    """Creates the users of the services, the roles, and the endpoints."""
    identity = cloud.identity
    project = identity.create_project(name="service", domain_id=DOMAIN)
    admin = identity.find_role("admin")
    service = identity.find_role("service") or identity.create_role(name="service")
    identity.create_role(name="load-balancer_member")
    for name in USERS:
        user = identity.create_user(name=name, password=os.environ["OS_PASSWORD"], domain_id=DOMAIN)
        identity.assign_project_role_to_user(project, user, admin)
        identity.assign_project_role_to_user(project, user, service)
    for name, entries in CATALOGUE.items():
        for kind, path in entries:
            entry = identity.create_service(name=name, type=kind)
            for interface in ("public", "internal", "admin"):
                identity.create_endpoint(
                    service_id=entry.id,
                    interface=interface,
                    region_id=REGION,
                    url=f"http://127.0.0.1:{ports[name]}{path}",
                )


def base(cloud: Any) -> None:
    """Creates what every project shares: external network, image, flavors, zones."""
    network = cloud.network.create_network(
        name=EXTERNAL_NETWORK,
        is_router_external=True,
        provider_network_type="flat",
        provider_physical_network="physnet1",
    )
    cloud.network.create_subnet(
        network_id=network.id,
        name=EXTERNAL_NETWORK,
        cidr=EXTERNAL_RANGE,
        ip_version=4,
        is_dhcp_enabled=False,
    )
    cloud.image.create_image(
        name="image",
        container_format="bare",
        disk_format="raw",
        visibility="public",
        data=b"\0" * 1024,
    )
    for name, size in FLAVORS.items():
        cloud.compute.create_flavor(name=name, ram=512 * size, vcpus=size, disk=1)
    hosts = sorted(each.host for each in cloud.compute.services(binary="nova-compute"))
    for number, host in enumerate(hosts, 1):
        zone = f"az{number}"
        aggregate = cloud.compute.create_aggregate(name=zone, availability_zone=zone)
        cloud.compute.add_host_to_aggregate(aggregate, host)


def main() -> None:
    cloud = openstack.connect()
    if sys.argv[1] == "catalogue":
        catalogue(cloud, dict(each.split("=") for each in sys.argv[2:]))
    else:
        base(cloud)


if __name__ == "__main__":
    main()
