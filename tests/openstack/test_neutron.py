"""Floating IPs, security groups and the choice of networks on a real Neutron."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import getpid
from typing import Any

import pytest
from tools.openstack_bed.bed import Bed

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Conflict, Misconfigured, QuotaExceeded
from pileus.providers.openstack import floating_ip, security_group
from pileus.providers.openstack.config import LoadBalancer
from pileus.providers.openstack.floating_ip import FloatingIps, FloatingIpSpec
from pileus.providers.openstack.marks import for_tags, owner_of, tags_of
from pileus.providers.openstack.networks import (
    FloatingChoice,
    Machine,
    NetworkRequest,
    choose,
    read_topology,
)
from pileus.providers.openstack.neutron import Neutron
from pileus.providers.openstack.port_writes import PortWrites
from pileus.providers.openstack.security_group import Rule, SecurityGroups, SecurityGroupSpec
from tests.openstack.cloud import NETWORK_AND_BALANCER, Objects, Project, differences, project
from tests.openstack.requests import RecordedApi, requests_of

pytestmark = pytest.mark.real_time

OWNER = Owner("cluster-1", "5e0c1f4e-6a0b-4c55-9a25-0f4f2a1c7b11")
TWIN = Owner("cluster-2", OWNER.uid)
NAME = security_group.name_of(OWNER, "shop", "web")


@dataclass
class Scene:
    """A project with servers, and a port that stands for the VIP of a load balancer."""

    project: Project
    vip: str = ""
    objects: Objects = field(default_factory=dict[str, Any])

    def begin(self) -> None:
        self.vip = self.port()["id"]
        self.objects = self.project.cloud.objects(NETWORK_AND_BALANCER)

    def port(self, network: str = "") -> dict[str, Any]:
        network_id = network or self.project.network
        return self.project.cloud.create("network", "/v2.0/ports", "port", network_id=network_id)

    def changes(self) -> list[str]:
        return list(differences(self.objects, self.project.cloud.objects(NETWORK_AND_BALANCER)))

    def end(self) -> None:
        cloud = self.project.cloud
        for one in cloud.listed("floatingips"):
            cloud.send("DELETE", "network", f"/v2.0/floatingips/{one['id']}")
        for one in cloud.listed("ports"):
            if not one["device_id"]:
                cloud.send("DELETE", "network", f"/v2.0/ports/{one['id']}")

    @property
    def floating_ip_spec(self) -> FloatingIpSpec:
        return FloatingIpSpec(
            owner=OWNER,
            description=floating_ip.description_of("shop", "web", "kubernetes"),
            choice=FloatingChoice(network_id=self.project.external),
        )

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        servers = self.project.servers
        return tuple(
            Machine(name, servers[name], self.project.address(name)) for name in sorted(servers)
        )

    def group_spec(self, *ports: int) -> SecurityGroupSpec:
        return SecurityGroupSpec(
            name=NAME,
            description=security_group.description_of("shop", "web", "kubernetes"),
            rules=frozenset(Rule("tcp", port, "10.7.0.0/16") for port in ports),
            machines=self.machines,
        )

    def floating_ips(self) -> list[dict[str, Any]]:
        return self.project.cloud.listed("floatingips")


@pytest.fixture(scope="module")
def furnished_once(bed: Bed) -> Iterator[Project]:
    with project(bed, f"neutron-{getpid()}") as made:
        made.add_network()
        made.add_servers("n1", "n2")
        yield made


@pytest.fixture
def scene(furnished_once: Project) -> Iterator[Scene]:
    made = Scene(furnished_once)
    made.begin()
    yield made
    made.end()


async def settle(
    api: RecordedApi, spec: FloatingIpSpec, vip: str, found: FloatingIps | None = None
) -> FloatingIps:
    """Make changes until there are none, each round on a new observation."""
    neutron = Neutron(api.client)
    for _ in range(4):
        seen = found or FloatingIps(await neutron.floating_ips()).of(spec, vip)
        changes = floating_ip.plan(spec, vip, seen)
        if not changes:
            return seen
        for change in changes:
            seen = await floating_ip.apply(neutron, change, seen)
        assert floating_ip.plan(spec, vip, seen) == () or not spec.is_wanted
        found = None
    raise AssertionError(f"changes without end: {spec}")


async def test_a_floating_ip_is_created_marked_and_deleted_again(scene: Scene) -> None:
    spec = scene.floating_ip_spec
    async with requests_of(scene.project.cloud) as api:
        seen = await settle(api, spec, scene.vip)
        assert api.writes[0] == "POST /v2.0/floatingips"
        assert len(api.writes) == 2, api.writes
        (made,) = scene.floating_ips()
        assert (made["port_id"], made["description"]) == (scene.vip, spec.description)
        assert owner_of(made["tags"]) == OWNER
        published = seen.on(scene.vip)
        assert published is not None
        assert published.floating_ip_address == made["floating_ip_address"]
        found = FloatingIps(await Neutron(api.client).floating_ips())
        assert found.owners("cluster-1") == {OWNER}
        await settle(api, replace(spec, is_wanted=False), scene.vip)
    assert scene.changes() == []


async def test_one_of_the_go_ccm_is_taken_over_by_a_mark_alone(scene: Scene) -> None:
    spec = scene.floating_ip_spec
    made = scene.project.cloud.create(
        "network",
        "/v2.0/floatingips",
        "floatingip",
        floating_network_id=scene.project.external,
        port_id=scene.vip,
        description=spec.description,
    )
    async with requests_of(scene.project.cloud) as api:
        await settle(api, spec, scene.vip)
        assert api.writes == [f"PUT /v2.0/floatingips/{made['id']}/tags"]


async def test_a_kept_one_stays_when_the_service_is_deleted(scene: Scene) -> None:
    spec = scene.floating_ip_spec
    async with requests_of(scene.project.cloud) as api:
        await settle(api, spec, scene.vip)
        kept = replace(spec, is_kept=True)
        await settle(api, kept, scene.vip)
        await settle(api, replace(kept, is_wanted=False), scene.vip)
    (left,) = scene.floating_ips()
    assert (left["port_id"], left["tags"]) == (None, [])


async def test_the_address_stays_when_the_load_balancer_is_replaced(scene: Scene) -> None:
    spec = scene.floating_ip_spec
    async with requests_of(scene.project.cloud) as api:
        await settle(api, spec, scene.vip)
        (before,) = scene.floating_ips()
        scene.project.cloud.send("DELETE", "network", f"/v2.0/ports/{scene.vip}")
        other = scene.port()["id"]
        await settle(api, spec, other)
    (after,) = scene.floating_ips()
    assert (after["id"], after["port_id"]) == (before["id"], other)


@pytest.mark.parametrize("is_trusted", [False, True], ids=["tenant", "trusted"])
async def test_an_address_in_use_is_refused_and_nothing_is_disclosed_about_its_user(
    scene: Scene, is_trusted: bool
) -> None:
    other = scene.port()["id"]
    made = scene.project.cloud.create(
        "network",
        "/v2.0/floatingips",
        "floatingip",
        floating_network_id=scene.project.external,
        port_id=other,
    )
    spec = replace(
        scene.floating_ip_spec, address=made["floating_ip_address"], may_use_foreign=is_trusted
    )
    async with requests_of(scene.project.cloud) as api:
        with pytest.raises(Misconfigured, match="in use, or not reserved") as refusal:
            await settle(api, spec, scene.vip)
        assert api.writes == []
    assert other not in str(refusal.value)
    assert made["id"] not in str(refusal.value)


async def test_one_that_was_attached_elsewhere_meanwhile_is_not_taken_away(scene: Scene) -> None:
    made = scene.project.cloud.create(
        "network", "/v2.0/floatingips", "floatingip", floating_network_id=scene.project.external
    )
    permits = for_tags(OWNER.cluster, "shop", "web")
    spec = replace(scene.floating_ip_spec, address=made["floating_ip_address"], permits=permits)
    async with requests_of(scene.project.cloud) as api:
        neutron = Neutron(api.client)
        with pytest.raises(Misconfigured, match=f"set --tag {permits[0]} "):
            await settle(api, spec, scene.vip)
        tags = f"/v2.0/floatingips/{made['id']}/tags"
        scene.project.cloud.send("PUT", "network", tags, {"tags": permits[:1]})
        seen = FloatingIps(await neutron.floating_ips()).of(spec, scene.vip)
        (attach,) = floating_ip.plan(spec, scene.vip, seen)
        other = scene.port()["id"]
        path = f"/v2.0/floatingips/{made['id']}"
        scene.project.cloud.send("PUT", "network", path, {"floatingip": {"port_id": other}})
        with pytest.raises(Conflict):
            await floating_ip.apply(neutron, attach, seen)
    assert scene.floating_ips()[0]["port_id"] == other


async def test_an_address_that_the_project_may_not_choose_is_explained(scene: Scene) -> None:
    spec = replace(scene.floating_ip_spec, address="203.0.113.200", may_use_foreign=True)
    async with requests_of(scene.project.cloud) as api:
        with pytest.raises(Misconfigured, match=r"loadBalancerIP 203.0.113.200.*ask an operator"):
            await settle(api, spec, scene.vip)


async def test_a_vip_without_way_to_the_external_network_is_explained(scene: Scene) -> None:
    cloud = scene.project.cloud
    island = cloud.create("network", "/v2.0/networks", "network", name="island")["id"]
    fields = {"network_id": island, "cidr": "10.99.0.0/24", "ip_version": 4}
    cloud.create("network", "/v2.0/subnets", "subnet", **fields)
    port = scene.port(island)["id"]
    async with requests_of(cloud) as api:
        with pytest.raises(Misconfigured, match="openstack router add subnet"):
            await settle(api, scene.floating_ip_spec, port)
    assert scene.floating_ips() == [], "nothing is left behind"


async def test_the_quota_of_floating_ips_is_reported_with_request_and_fix(scene: Scene) -> None:
    path = f"/v2.0/quotas/{scene.project.cloud.project}"
    scene.project.admin.send("PUT", "network", path, {"quota": {"floatingip": 0}})
    try:
        async with requests_of(scene.project.cloud) as api:
            with pytest.raises(QuotaExceeded, match=r"req-.*openstack quota set --floating-ips"):
                await settle(api, scene.floating_ip_spec, scene.vip)
    finally:
        scene.project.admin.send("DELETE", "network", path)


async def observed(api: RecordedApi, machines: tuple[Machine, ...], owner: Owner) -> SecurityGroups:
    neutron = Neutron(api.client)
    ports = await neutron.ports_of(one.server_id for one in machines)
    return (await security_group.read_groups(neutron, ports)).of(owner)


async def settle_group(
    api: RecordedApi, scene: Scene, spec: SecurityGroupSpec | None, owner: Owner = OWNER
) -> list[str]:
    made: list[str] = []
    for _ in range(4):
        seen = await observed(api, scene.machines, owner)
        changes = security_group.plan(owner, spec, seen)
        if not changes:
            return made
        for change in changes:
            seen = await security_group.apply(Neutron(api.client), change, seen, PortWrites())
            made.append(type(change).__name__)
    raise AssertionError(f"changes without end: {made}")


async def test_a_security_group_lives_and_leaves_nothing_behind(scene: Scene) -> None:
    async with requests_of(scene.project.cloud) as api:
        spec = scene.group_spec(30080, 30443)
        made = await settle_group(api, scene, spec)
        assert made == ["CreateSecurityGroup", "AttachSecurityGroup"]
        group = scene.project.cloud.find("security_groups", NAME)
        assert sorted(group["tags"]) == sorted(tags_of(OWNER))
        rules = {(one["direction"], one["port_range_min"]) for one in group["security_group_rules"]}
        assert rules == {("ingress", 30080), ("ingress", 30443)}
        assert await settle_group(api, scene, scene.group_spec(30080, 30053)) == ["ChangeRules"]
        assert await settle_group(api, scene, None, TWIN) == []
        fewer = replace(spec, machines=scene.machines[:1], rules=scene.group_spec(30080).rules)
        assert await settle_group(api, scene, fewer) == ["ChangeRules", "DetachSecurityGroup"]
        users = scene.project.cloud.listed("ports", security_groups=group["id"])
        assert [one["device_id"] for one in users] == [scene.machines[0].server_id]
        made = await settle_group(api, scene, None)
        assert made == ["DetachSecurityGroup", "DeleteSecurityGroup"]
    assert scene.changes() == []


async def test_security_groups_that_something_else_adds_are_not_lost(scene: Scene) -> None:
    cloud = scene.project.cloud
    async with requests_of(cloud) as api:
        await settle_group(api, scene, replace(scene.group_spec(30080), machines=()))
        seen = await observed(api, scene.machines, OWNER)
        (attach,) = security_group.plan(OWNER, scene.group_spec(30080), seen)
        other = cloud.create("network", "/v2.0/security-groups", "security_group", name="other")
        (port,) = cloud.listed("ports", device_id=scene.machines[0].server_id)
        path = f"/v2.0/ports/{port['id']}"
        groups = [*port["security_groups"], other["id"]]
        cloud.send("PUT", "network", path, {"port": {"security_groups": groups}})
        await security_group.apply(Neutron(api.client), attach, seen, PortWrites())
        assert await settle_group(api, scene, scene.group_spec(30080)) == []
        (port,) = cloud.listed("ports", device_id=scene.machines[0].server_id)
        assert len(port["security_groups"]) == 3
        await settle_group(api, scene, None)
        body = {"port": {"security_groups": groups[:-1]}}
        cloud.send("PUT", "network", path, body)
        cloud.send("DELETE", "network", f"/v2.0/security-groups/{other['id']}")
    assert scene.changes() == []


async def test_the_networks_of_a_service_are_detected(scene: Scene) -> None:
    request = NetworkRequest(machines=scene.machines)
    async with requests_of(scene.project.cloud) as api:
        topology = await read_topology(Neutron(api.client), [request] * 100, LoadBalancer(), {})
        assert len(api.calls) == 3
    chosen = choose(request, topology, LoadBalancer(), {})
    assert chosen.vip_subnet_id == chosen.member_subnet_id == scene.project.subnet
    assert chosen.member_cidr == "10.7.0.0/16"
    assert chosen.floating == FloatingChoice(network_id=scene.project.external)
