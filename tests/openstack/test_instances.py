"""Machines of the provider on real services: boot, stop, delete, interfaces, floating IPs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tools.openstack_bed.bed import PASSWORD, REGION, Bed

from pileus.cloud.interface import Cloud
from pileus.cloud.model import Absent, Failure, Found, Instance, InstanceState, NodeName, NodeRef
from pileus.providers.openstack.api import Service
from pileus.providers.openstack.nova import Nova
from pileus.testing.conformance.instances import InstancesLaws
from tests.openstack.cloud import Cloud as BedCloud
from tests.openstack.cloud import Project, eventually
from tests.openstack.machines import BedInstancesHarness, OnBed, act, provider
from tests.openstack.requests import requests_of

pytestmark = pytest.mark.real_time


@pytest.mark.extended
class TestInstancesLaws(InstancesLaws):
    @pytest.fixture(autouse=True)
    def _project(self, empty: Project, tmp_path: Path) -> None:
        empty.add_network()
        self.bed = OnBed(empty, tmp_path)

    def make(self) -> BedInstancesHarness:
        return BedInstancesHarness(self.bed)


def by_id(project: Project, name: str) -> NodeRef:
    return NodeRef(name=NodeName(name), provider_id=f"openstack:///{project.servers[name]}")


def by_name(name: str) -> NodeRef:
    return NodeRef(name=NodeName(name))


async def find(cloud: Cloud, *nodes: NodeRef) -> list[Found]:
    assert cloud.instances is not None
    found = await cloud.instances.find(nodes, fresh=True)
    return [found[node.name] for node in nodes]


async def addresses(
    project: Project, folder: Path, name: str, **keys: str
) -> list[tuple[str, str]]:
    sections = {"Networking": "\n".join(f"{k.replace('_', '-')}={v}" for k, v in keys.items())}
    async with provider(project, folder, **sections) as (cloud, _):
        (found,) = await find(cloud, by_id(project, name))
    assert isinstance(found, Instance), found
    return [(one.type, one.address) for one in found.addresses]


async def test_servers_are_found_by_id_and_by_name_with_their_facts(
    furnished: Project, tmp_path: Path
) -> None:
    async with provider(furnished, tmp_path) as (cloud, _):
        first, second = await find(cloud, by_id(furnished, "node-1"), by_name("node-2"))
    assert isinstance(first, Instance)
    assert isinstance(second, Instance)
    assert first.provider_id == f"openstack:///{furnished.servers['node-1']}"
    assert (first.zone, second.zone) == ("az1", "az2")
    assert (first.type, first.region, first.state) == ("m1", REGION, InstanceState.RUNNING)
    internal = [(one.type, one.address) for one in first.addresses]
    assert internal == [("InternalIP", furnished.address("node-1"))]


async def test_a_name_is_not_a_pattern_and_a_missing_one_is_absent(
    furnished: Project, tmp_path: Path
) -> None:
    async with provider(furnished, tmp_path) as (cloud, _):
        found = await find(cloud, by_name("node.1"), by_name("node"), by_name("node-2"))
    assert isinstance(found[0], Absent)
    assert isinstance(found[1], Absent)
    assert isinstance(found[2], Instance)


async def test_states_follow_the_server_until_it_is_deleted(
    furnished: Project, tmp_path: Path
) -> None:
    node = by_id(furnished, "node-1")
    async with provider(furnished, tmp_path) as (cloud, _):

        async def state() -> InstanceState:
            (found,) = await find(cloud, node)
            assert isinstance(found, Instance), found
            return found.state

        act(furnished, "node-1", "os-stop", "SHUTOFF")
        assert await state() is InstanceState.STOPPED
        act(furnished, "node-1", "os-start", "ACTIVE")
        assert await state() is InstanceState.RUNNING
        act(furnished, "node-1", "pause", "PAUSED")
        assert await state() is InstanceState.UNKNOWN
        act(furnished, "node-1", "unpause", "ACTIVE")
        act(furnished, "node-1", "suspend", "SUSPENDED")
        assert await state() is InstanceState.UNKNOWN
        act(furnished, "node-1", "resume", "ACTIVE")
        furnished.delete_server("node-1")
        (found,) = await find(cloud, node)
    assert isinstance(found, Absent)
    assert "404" in found.evidence


async def test_a_server_in_error_and_one_without_ports_exist(
    furnished: Project, tmp_path: Path
) -> None:
    failed, bare = furnished.servers["node-1"], furnished.servers["node-2"]
    body = {"os-resetState": {"state": "error"}}
    furnished.admin.send("POST", "compute", f"/servers/{failed}/action", body)
    for port in furnished.cloud.listed("ports", device_id=bare):
        path = f"/servers/{bare}/os-interface/{port['id']}"
        furnished.cloud.send("DELETE", "compute", path)
    eventually("node-2 has no address", lambda: not furnished.server("node-2")["addresses"])
    async with provider(furnished, tmp_path) as (cloud, _):
        found = await find(cloud, by_name("node-1"), by_id(furnished, "node-2"))
    first, second = found
    assert isinstance(first, Instance)
    assert first.state is InstanceState.UNKNOWN
    assert isinstance(second, Instance)
    assert (second.addresses, second.state) == ((), InstanceState.RUNNING)


async def test_two_servers_with_one_name_are_a_failure(furnished: Project, tmp_path: Path) -> None:
    path = f"/servers/{furnished.servers['node-2']}"
    furnished.cloud.send("PUT", "compute", path, {"server": {"name": "node-1"}})
    async with provider(furnished, tmp_path) as (cloud, _):
        (found,) = await find(cloud, by_name("node-1"))
    assert isinstance(found, Failure)
    assert furnished.servers["node-2"] in str(found.error)


async def test_floating_ips_and_further_interfaces_are_addresses(
    furnished: Project, tmp_path: Path
) -> None:
    cloud, first = furnished.cloud, furnished.address("node-1")
    second, address = _second_interface(furnished)
    floating = _floating_ip(furnished)
    # Nova learns of the floating IP from Neutron, and has to refresh what it knows.
    eventually("Nova knows the addresses", _known(furnished, {first, address, floating}))
    internal = {("InternalIP", first), ("InternalIP", address)}
    found = await addresses(furnished, tmp_path, "node-1")
    assert set(found) == {*internal, ("ExternalIP", floating)}
    ports = sorted(cloud.listed("ports", device_id=furnished.servers["node-1"]), key=_id)
    order = [one["fixed_ips"][0]["ip_address"] for one in ports]
    assert [one[1] for one in found[:2]] == order, "fixed addresses by ID of their port"
    assert await addresses(furnished, tmp_path, "node-1", internal_network_name="second") == [
        ("InternalIP", address),
        ("ExternalIP", floating),
    ]
    public = await addresses(furnished, tmp_path, "node-1", public_network_name="second")
    assert ("ExternalIP", address) in public
    assert ("InternalIP", address) not in public
    order = "10.9.0.0/16,10.7.0.0/16"
    sorted_ = await addresses(furnished, tmp_path, "node-1", address_sort_order=order)
    assert [one[1] for one in sorted_] == [address, first, floating]
    cloud.send("DELETE", "compute", f"/servers/{furnished.servers['node-1']}/os-interface/{second}")
    eventually("Nova knows the addresses", _known(furnished, {first, floating}))
    assert ("InternalIP", address) not in await addresses(furnished, tmp_path, "node-1")


async def test_an_unknown_internal_network_fails_with_the_names_that_exist(
    furnished: Project, tmp_path: Path
) -> None:
    async with provider(furnished, tmp_path, Networking="internal-network-name=node") as (cloud, _):
        (found,) = await find(cloud, by_name("node-1"))
    assert isinstance(found, Failure)
    assert 'did you mean "nodes"' in str(found.error)


async def test_a_lookup_of_all_nodes_is_two_requests(furnished: Project, tmp_path: Path) -> None:
    names = [f"more-{number}" for number in range(6)]
    furnished.add_servers(*names)
    async with provider(furnished, tmp_path) as (cloud, api):
        found = await find(cloud, *map(by_name, furnished.servers))
    assert all(isinstance(one, Instance) for one in found)
    assert [(call.service, call.path) for call in api.calls] == [
        (Service.COMPUTE, "/servers/detail"),
        (Service.NETWORK, "/v2.0/ports"),
    ]


def _second_interface(project: Project) -> tuple[str, str]:
    """Returns the port and the address of a new interface of node-1 in a second network."""
    create = project.cloud.create
    network = create("network", "/v2.0/networks", "network", name="second")["id"]
    subnet = {"network_id": network, "cidr": "10.9.0.0/16", "ip_version": 4}
    create("network", "/v2.0/subnets", "subnet", **subnet)
    path = f"/servers/{project.servers['node-1']}/os-interface"
    made = create("compute", path, "interfaceAttachment", net_id=network)
    return made["port_id"], made["fixed_ips"][0]["ip_address"]


def _floating_ip(project: Project) -> str:
    ports = project.cloud.listed("ports", device_id=project.servers["node-1"])
    port = next(one["id"] for one in ports if one["network_id"] == project.network)
    fields = {"floating_network_id": project.external, "port_id": port}
    made = project.cloud.create("network", "/v2.0/floatingips", "floatingip", **fields)
    return made["floating_ip_address"]


def _known(project: Project, addresses: set[str]) -> Callable[[], bool]:
    def known() -> bool:
        networks = project.server("node-1")["addresses"].values()
        return {one["addr"] for each in networks for one in each} == addresses

    return known


def _id(item: dict[str, Any]) -> str:
    return item["id"]


@pytest.mark.parametrize("role", ["member", "reader"])
async def test_users_without_special_roles_see_that_a_server_was_deleted(
    bed: Bed, empty: Project, role: str
) -> None:
    empty.add_network()
    empty.add_servers("node-1", "node-2")
    present, deleted = empty.servers["node-1"], empty.servers["node-2"]
    empty.delete_server("node-2")
    roles = {each["name"]: each["id"] for each in empty.admin.get("identity", "/roles")["roles"]}
    user = f"{empty.cloud.user}-{role}"
    fields = {"name": user, "password": PASSWORD, "domain_id": "default"}
    made = empty.admin.create("identity", "/users", "user", **fields)
    path = f"/projects/{empty.cloud.project}/users/{made['id']}/roles/{roles[role]}"
    empty.admin.send("PUT", "identity", path)
    try:
        async with requests_of(BedCloud(bed, user, empty.cloud.project_name)) as api:
            nova = Nova(api.client)
            known = [await nova.has_known(one) for one in (present, deleted, str(uuid4()))]
    finally:
        empty.admin.send("DELETE", "identity", f"/users/{made['id']}")
    assert known == [True, True, False]
