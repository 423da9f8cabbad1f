"""The security group of a Service, on the model of OpenStack."""

import asyncio
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from pileus.cloud.balancer import (
    BalancerSpec,
    HealthCheck,
    Listener,
    Owner,
    Part,
    Transport,
)
from pileus.cloud.errors import CloudError, Conflict, QuotaExceeded, Unavailable
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.marks import owner_of, tags_of
from pileus.providers.openstack.networks import Machine
from pileus.providers.openstack.neutron import Neutron
from pileus.providers.openstack.port_writes import PortWrites
from pileus.providers.openstack.security_group import (
    AttachSecurityGroup,
    ChangeRules,
    CreateSecurityGroup,
    DeleteSecurityGroup,
    DetachSecurityGroup,
    MarkSecurityGroup,
    Rule,
    SecurityGroups,
    SecurityGroupSpec,
    apply,
    description_of,
    name_of,
    plan,
    read_groups,
    rules_of,
)
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Settings

OWNER = Owner("cluster-1", "0b1c-uid")
TWIN = Owner("cluster-2", "0b1c-uid")
NAME = name_of(OWNER, "shop", "web")
HTTP = Rule("tcp", 30080, "10.0.0.0/24")
HTTPS = Rule("tcp", 30443, "10.0.0.0/24")
SPEC = SecurityGroupSpec(
    name=NAME,
    description=description_of("shop", "web", "kubernetes"),
    rules=frozenset({HTTP, HTTPS}),
)


class Faulty(ModelApi):
    """A model that answers some requests with an error, once each."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.faults: dict[tuple[str, str], CloudError] = {}

    async def call(self, call: Call) -> Any:
        fault = self.faults.pop((call.method, call.path), None)
        if fault:
            raise fault
        return await super().call(call)


@dataclass
class World:
    api: Faulty = field(default_factory=Faulty)
    machines: tuple[Machine, ...] = ()
    owner: Owner = OWNER
    writes: PortWrites = field(default_factory=PortWrites)

    def __post_init__(self) -> None:
        network, *_ = self.api.add_network("nodes", "10.0.0.0/24")
        for n in range(3):
            server = self.api.add_server(f"n{n}", network)
            address = self.api.port_of(server)["fixed_ips"][0]["ip_address"]
            self.machines += (Machine(f"n{n}", server, address),)

    @property
    def neutron(self) -> Neutron:
        return Neutron(Client(self.api))

    def spec(self, **changes: Any) -> SecurityGroupSpec:
        return replace(SPEC, machines=self.machines, **changes)

    async def observe(self) -> SecurityGroups:
        ports = await self.neutron.ports_of(each.server_id for each in self.machines)
        return (await read_groups(self.neutron, ports)).of(self.owner)

    async def settle(self, spec: SecurityGroupSpec | None) -> list[str]:
        """Make changes until there are none, as the core does. Returns the kinds of changes."""
        made: list[str] = []
        for _ in range(5):
            observed = await self.observe()
            changes = plan(self.owner, spec, observed)
            if not changes:
                return made
            for change in changes:
                observed = await apply(self.neutron, change, observed, self.writes)
                made.append(type(change).__name__)
            assert not plan(self.owner, spec, observed) or "Create" in made[0]
        raise AssertionError(f"changes without end: {made}")

    def add_a_group(self, machine: int) -> list[str]:
        """Something else gives the port of a machine one more group. Returns all of them."""
        body = {"security_group": {"name": "other"}}
        made = self.api.must(Service.NETWORK, "POST", "/v2.0/security-groups", body)
        groups = [*self.groups_of(machine), made["security_group"]["id"]]
        port = self.api.port_of(self.machines[machine].server_id)
        path = f"/v2.0/ports/{port['id']}"
        self.api.must(Service.NETWORK, "PUT", path, {"port": {"security_groups": groups}})
        return groups

    def group(self) -> Any:
        (found,) = (one for one in self.api.records("security-groups") if one["name"] == NAME)
        return found

    def groups_of(self, machine: int) -> list[str]:
        return list(self.api.port_of(self.machines[machine].server_id)["security_groups"])

    def rules(self) -> set[tuple[str, int]]:
        found = self.api.records("security-group-rules")
        mine = [one for one in found if one["security_group_id"] == self.group()["id"]]
        return {(one["direction"], one["port_range_min"]) for one in mine}


def test_names_are_those_of_the_go_cloud_controller_manager() -> None:
    assert NAME == "lb-sg-0b1c-uid-shop-web"
    assert SPEC.description == (
        "Security Group for shop/web Service LoadBalancer in cluster kubernetes"
    )


def test_the_rules_open_the_node_ports_and_the_health_check_to_the_member_subnet() -> None:
    spec = BalancerSpec(
        listeners=frozenset({
            Listener(port=80, node_port=30080),
            Listener(port=53, node_port=30053, transport=Transport.UDP),
            Listener(port=81, node_port=0),
        }),
        members=frozenset(),
        source_ranges=frozenset({"192.0.2.0/24", "fd00::/8"}),
        health=HealthCheck(node_port=32000),
    )
    subnet = "10.0.0.0/24"
    health = Rule("tcp", 32000, subnet)
    assert rules_of(spec, subnet) == {HTTP, Rule("udp", 30053, subnet), health}
    assert rules_of(spec, subnet, keeps_client_address=True) == {
        Rule("tcp", 30080, "192.0.2.0/24"),
        Rule("udp", 30053, "192.0.2.0/24"),
        health,
    }
    anyone = replace(spec, source_ranges=frozenset[str](), health=None)
    assert {one.cidr for one in rules_of(anyone, "fd00::/64", keeps_client_address=True)} == {
        "::/0"
    }


async def test_group_rules_and_ports_are_created_and_then_nothing_is_left_to_do() -> None:
    world = World()
    assert await world.settle(world.spec()) == ["CreateSecurityGroup", "AttachSecurityGroup"]
    group = world.group()
    assert owner_of(group["tags"]) == OWNER
    assert world.rules() == {("ingress", 30080), ("ingress", 30443)}
    for n in range(3):
        assert world.groups_of(n)[-1] == group["id"]
        assert len(world.groups_of(n)) == 2, "other groups of the port stay"
    assert await world.settle(world.spec()) == []


async def test_rules_are_created_in_one_request() -> None:
    world = World()
    await world.settle(world.spec())
    assert world.api.requests["network", "POST", "/v2.0/security-group-rules"] == 1


async def test_changed_ports_of_the_service_change_only_the_difference() -> None:
    world = World()
    await world.settle(world.spec())
    world.api.calls.clear()
    changed = world.spec(rules=frozenset({HTTP, Rule("udp", 30053, "10.0.0.0/24")}))
    assert await world.settle(changed) == ["ChangeRules"]
    assert world.rules() == {("ingress", 30080), ("ingress", 30053)}
    writes = [call.method for call in world.api.calls if call.writes]
    assert writes == ["POST", "DELETE"], "open first, close then"


async def test_fault_3_of_the_go_ccm_ports_of_nodes_that_left_lose_the_group() -> None:
    world = World()
    await world.settle(world.spec())
    world.machines = world.machines[1:]
    left = world.api.records("servers")[0]
    assert await world.settle(world.spec()) == ["DetachSecurityGroup"]
    assert world.group()["id"] not in world.api.port_of(left["id"])["security_groups"]
    assert world.group()["id"] in world.groups_of(0)


async def test_fault_4_of_the_go_ccm_a_missing_rule_does_not_stop_the_rest() -> None:
    world = World()
    await world.settle(replace(SPEC, machines=()))
    observed = await world.observe()
    new = Rule("udp", 30053, "10.0.0.0/24")
    rules, attach = plan(OWNER, world.spec(rules=frozenset({new})), observed)
    assert isinstance(rules, ChangeRules)
    missing, other = rules.delete
    world.api.must(Service.NETWORK, "DELETE", f"/v2.0/security-group-rules/{missing.id}")
    for change in (rules, attach):
        observed = await apply(world.neutron, change, observed, world.writes)
    assert all(one["id"] != other.id for one in world.api.records("security-group-rules"))
    assert world.rules() == {("ingress", 30053)}
    assert all(world.group()["id"] in world.groups_of(n) for n in range(3))


async def test_a_member_that_is_not_initialized_yet_keeps_the_group() -> None:
    world = World()
    await world.settle(world.spec())
    first, *others = world.machines
    spec = replace(SPEC, machines=(replace(first, server_id=""), *others))
    assert await world.settle(spec) == []


async def test_ports_without_port_security_are_skipped() -> None:
    world = World()
    port = world.api.port_of(world.machines[0].server_id)
    world.api.change("ports", port["id"], {"port_security_enabled": False, "security_groups": []})
    await world.settle(world.spec())
    assert world.groups_of(0) == []
    assert world.group()["id"] in world.groups_of(1)


async def test_groups_that_something_else_adds_meanwhile_are_not_lost() -> None:
    world = World()
    await world.settle(replace(SPEC, machines=()))
    observed = await world.observe()
    (attach,) = plan(OWNER, world.spec(), observed)
    others = world.add_a_group(0)
    await apply(world.neutron, attach, observed, world.writes)
    assert world.groups_of(0) == [*others, world.group()["id"]]
    assert world.group()["id"] in world.groups_of(1)


async def test_a_port_that_is_changed_again_and_again_is_left_to_the_next_pass() -> None:
    world = World()
    await world.settle(replace(SPEC, machines=()))
    observed = await world.observe()
    (attach,) = plan(OWNER, world.spec(), observed)
    path = f"/v2.0/ports/{world.api.port_of(world.machines[0].server_id)['id']}"
    world.api.faults["PUT", path] = Conflict("Constrained to 1, but current revision is 2")
    before = world.groups_of(0)
    with pytest.raises(Conflict, match="Constrained"):
        await apply(world.neutron, attach, observed, world.writes)
    assert world.groups_of(0) == before, "nothing newer was read: the same would be refused again"
    assert world.group()["id"] in world.groups_of(1), "the other ports were changed all the same"
    await world.settle(world.spec())


async def test_a_port_that_another_server_got_meanwhile_is_left_alone() -> None:
    world = World()
    await world.settle(replace(SPEC, machines=()))
    observed = await world.observe()
    (attach,) = plan(OWNER, world.spec(), observed)
    port = world.api.port_of(world.machines[0].server_id)
    others = world.add_a_group(0)
    world.api.change("ports", port["id"], {"device_id": "another"})
    with pytest.raises(Conflict, match="used by something else"):
        await apply(world.neutron, attach, observed, world.writes)
    assert world.api.record("ports", port["id"])["security_groups"] == others


async def test_many_services_at_once_never_refuse_each_other_the_same_ports() -> None:
    world = World()
    services = [copy(world) for _ in range(7)]
    changes: list[tuple[World, AttachSecurityGroup, SecurityGroups]] = []
    for number, one in enumerate(services):
        one.owner = Owner("cluster-1", f"{number}-uid")
        name = name_of(one.owner, "shop", "web")
        await one.settle(replace(SPEC, name=name, machines=()))
        observed = await one.observe()
        (attach,) = plan(one.owner, one.spec(name=name), observed)
        assert isinstance(attach, AttachSecurityGroup)
        changes.append((one, attach, observed))
    world.api.calls.clear()
    await asyncio.gather(
        *(apply(one.neutron, attach, seen, world.writes) for one, attach, seen in changes)
    )
    added = {attach.group.id for _, attach, _ in changes}
    assert all(added <= set(world.groups_of(n)) for n in range(3))
    assert [call.method for call in world.api.calls] == ["PUT"] * 3 * len(services)


async def test_a_port_that_was_deleted_meanwhile_is_no_error() -> None:
    world = World()
    await world.settle(replace(SPEC, machines=()))
    observed = await world.observe()
    (attach,) = plan(OWNER, world.spec(), observed)
    world.api.delete_server(world.machines[0].server_id)
    after = await apply(world.neutron, attach, observed, world.writes)
    assert len(after.ports) == 2


async def test_a_crash_before_the_mark_is_found_by_the_uid_in_the_name() -> None:
    world = World()
    fault = Unavailable("the process dies here")
    create, attach = plan(OWNER, world.spec(), await world.observe())
    assert isinstance(create, CreateSecurityGroup)
    world.api.faults["POST", "/v2.0/security-group-rules"] = fault
    with pytest.raises(Unavailable):
        await apply(world.neutron, create, SecurityGroups(), world.writes)
    with pytest.raises(Conflict, match="is not created yet"):
        await apply(world.neutron, attach, SecurityGroups(), world.writes)
    world.api.change("security-groups", world.group()["id"], {"tags": []})
    made = await world.settle(world.spec())
    assert made == ["MarkSecurityGroup", "ChangeRules", "AttachSecurityGroup"]
    assert world.rules() == {("ingress", 30080), ("ingress", 30443)}


async def test_the_group_of_a_cluster_that_is_taken_over_only_gets_a_mark() -> None:
    world = World()
    await world.settle(world.spec())
    world.api.change("security-groups", world.group()["id"], {"tags": ["mine"]})
    assert await world.settle(world.spec()) == ["MarkSecurityGroup"]
    assert world.group()["tags"] == ["mine", *tags_of(OWNER)]


async def test_the_group_of_a_cluster_with_the_same_service_uid_is_not_touched() -> None:
    world = World()
    await world.settle(world.spec())
    other = World(api=world.api, owner=TWIN)
    assert await other.settle(None) == []
    assert world.group()["id"] in world.groups_of(0)


async def test_the_group_is_removed_from_all_ports_before_it_is_deleted() -> None:
    world = World()
    await world.settle(world.spec())
    group = world.group()["id"]
    assert await world.settle(None) == ["DetachSecurityGroup", "DeleteSecurityGroup"]
    assert all(group not in one["security_groups"] for one in world.api.records("ports"))
    assert all(one["id"] != group for one in world.api.records("security-groups"))
    assert await world.settle(None) == []


async def test_a_second_group_of_the_same_service_is_removed() -> None:
    world = World()
    await world.settle(world.spec())
    world.api.must(
        Service.NETWORK, "POST", "/v2.0/security-groups", {"security_group": {"name": NAME}}
    )
    made = await world.settle(world.spec())
    assert made[-1] == "DeleteSecurityGroup"
    assert world.group()["name"] == NAME


async def test_an_exceeded_quota_names_the_group_and_the_next_step() -> None:
    world = World()
    world.api.faults["POST", "/v2.0/security-groups"] = QuotaExceeded("Quota exceeded [req-1]")
    with pytest.raises(QuotaExceeded, match=rf"{NAME}.*req-1.*openstack quota set --secgroups"):
        await world.settle(world.spec())


async def test_observing_a_hundred_services_costs_two_lists() -> None:
    world = World()
    await world.settle(world.spec())
    world.api.calls.clear()
    await read_groups(world.neutron)
    assert len(world.api.calls) == 2


async def test_only_members_ports_are_member_changes() -> None:
    """The ports of a group that does not exist yet are part of its creation."""
    world = World()
    create, attach = plan(OWNER, world.spec(), await world.observe())
    assert (create.part, attach.part) == (Part.WHOLE, Part.WHOLE)
    await world.settle(world.spec())
    group = (await world.observe()).groups[0]
    assert AttachSecurityGroup(group, ()).part is DetachSecurityGroup.part is Part.MEMBERS
    parts = {one.part for one in (MarkSecurityGroup, ChangeRules, DeleteSecurityGroup)}
    assert parts == {Part.WHOLE}


async def test_the_owners_of_a_cluster_are_found_by_marks() -> None:
    world = World()
    await world.settle(world.spec())
    found = await read_groups(world.neutron)
    assert found.owners("cluster-1") == {OWNER}
    assert found.owners("cluster-2") == frozenset()


async def test_the_tag_that_old_versions_of_the_go_ccm_set_on_ports_is_removed() -> None:
    world = World()
    await world.settle(world.spec())
    port = world.api.port_of(world.machines[0].server_id)
    world.api.change("ports", port["id"], {"tags": ["mine", world.group()["id"]]})
    await world.settle(None)
    assert world.api.port_of(world.machines[0].server_id)["tags"] == ["mine"]


async def test_a_rule_without_prefix_is_one_from_anywhere() -> None:
    world = World()
    anywhere = replace(SPEC, rules=frozenset({Rule("tcp", 30080, "0.0.0.0/0")}))
    await world.settle(anywhere)
    observed = await world.observe()
    (group,) = observed.groups
    rules = tuple(msgspec.structs.replace(one, remote_ip_prefix=None) for one in group.rules)
    bare = SecurityGroups((msgspec.structs.replace(group, rules=rules),), observed.ports)
    assert plan(OWNER, anywhere, bare) == ()
