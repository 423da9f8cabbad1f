"""Where conversations take place: the furnished model, and networks of their own."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from pileus.providers.openstack.api import Service
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Settings
from tests.openstack.talk import ModelTarget, Talk

NOWHERE = "00000000-0000-4000-8000-000000000000"
"""The ID of nothing."""
SMALL = "00000000-0000-4000-8000-000000000001"
"""The ID of the flavor m1."""


def model() -> ModelTarget:
    """The model, furnished as the projects of the test bed are."""
    api = ModelApi(Settings(pending_seconds=1, lb_flavors=frozenset()))
    public, _ = api.add_network("public", "203.0.112.0/20", external=True)
    network, subnet = api.add_network("nodes", "10.7.0.0/16")
    api.change("subnets", subnet, {"name": "nodes"})
    api.add_router([subnet], external=public, name="nodes")
    flavor = {"id": SMALL, "name": "m1", "vcpus": 1, "ram": 512, "disk": 1}
    api.state = api.state.put("flavors", flavor)
    for number in (1, 2, 3):
        api.add_server(f"node-{number}", network, zone=f"az{number}", flavor=SMALL)
    return ModelTarget(api)


@dataclass(frozen=True)
class Place:
    """A network of its own for one conversation."""

    network: str
    subnet: str
    router: str
    public: str


@contextmanager
def place(talk: Talk, prefix: str) -> Generator[Place]:
    """Creates a network with a router, and deletes it."""
    found = talk.net("GET", "/networks", None, ("name", "public"), ("fields", "id"))
    public = found["networks"][0]["id"]
    network = talk.net("POST", "/networks", {"network": {"name": f"{prefix}-net"}})
    network_id = network["network"]["id"]
    fields = {"network_id": network_id, "name": prefix, "cidr": "10.99.0.0/24", "ip_version": 4}
    subnet = talk.net("POST", "/subnets", {"subnet": fields})["subnet"]["id"]
    gateway = {"name": prefix, "external_gateway_info": {"network_id": public}}
    router = talk.net("POST", "/routers", {"router": gateway})["router"]["id"]
    talk.net("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": subnet})
    try:
        yield Place(network_id, subnet, router, public)
    finally:
        clear = {"router": {"routes": []}}
        talk.quietly(Service.NETWORK, "PUT", f"/v2.0/routers/{router}", clear)
        path = f"/v2.0/routers/{router}/remove_router_interface"
        talk.quietly(Service.NETWORK, "PUT", path, {"subnet_id": subnet})
        for what in (f"routers/{router}", f"subnets/{subnet}", f"networks/{network_id}"):
            talk.quietly(Service.NETWORK, "DELETE", f"/v2.0/{what}")
