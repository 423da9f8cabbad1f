"""The model of OpenStack as the laws for load balancers fill, break and inspect it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pileus.cloud.abilities import DEFAULT_AFFINITY_SECONDS, Abilities
from pileus.cloud.balancer import BalancerSpec, Owner, Wish
from pileus.cloud.model import Address, NodeName, NodeRef
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.balancers import OpenStackBalancers, abilities_of
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from pileus.providers.openstack.marks import tags_of
from pileus.providers.openstack.ownership import cluster_of, services_of
from pileus.testing.conformance.harness import CRASH, BalancersHarness, Built
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Record, Settings

OPEN = frozenset({"0.0.0.0/0"})


class BreakableApi(ModelApi):
    """The model, and a process that may die at each request."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.chance: Callable[[], bool] = lambda: False
        self.error: BaseException = CRASH
        self.overlooks: Callable[[], bool] = lambda: False

    async def call(self, call: Call) -> Any:
        self._perhaps()
        self.now += 1
        answer = await super().call(call)
        self._perhaps()
        lists = [key for key in answer or () if isinstance(answer[key], list)]
        is_list = call.method == "GET" and bool(lists)
        return {lists[0]: []} if is_list and self.overlooks() else answer

    def _perhaps(self) -> None:
        if self.chance():
            raise self.error


@dataclass
class OpenStackBalancersHarness(BalancersHarness):
    config: LoadBalancer = field(default_factory=LoadBalancer)
    api: BreakableApi = field(default_factory=BreakableApi)
    abilities: Abilities = field(init=False)
    detects_subnets: bool = False
    """Whether members tell the subnet, as IPv6 needs; otherwise an IPv4 subnet is configured."""
    finds_leftovers: bool = True
    keeps_fingerprints: bool = True
    servers: dict[str, str] = field(default_factory=dict[str, str])
    """IDs of the members' servers, also of deleted ones, by name."""
    nodes: dict[str, NodeRef] = field(default_factory=dict[str, NodeRef])

    def __post_init__(self) -> None:
        self.abilities = abilities_of(OpenStackConfig(load_balancer=self.config))
        self.public, _ = self.api.add_network("public", "203.0.113.0/24", external=True)
        self.network, self.subnet, _ = self.api.add_network(
            "private", "10.0.0.0/24", "fd00:10::/64"
        )
        self.api.add_router([self.subnet], external=self.public)
        if not self.detects_subnets:
            self.config = replace(self.config, subnet_id=self.subnet)

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[OpenStackBalancers]:
        config = OpenStackConfig(load_balancer=self.config)
        yield OpenStackBalancers(Client(self.api), config)

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        return Wish(owner=owner, spec=spec, namespace="default", service=f"service-{owner.uid}")

    def member(self, name: str) -> NodeRef:
        if name not in self.nodes:
            server = self.api.add_server(name, self.network)
            found = self.api.port_of(server)["fixed_ips"]
            addresses = found if self.detects_subnets else found[:1]
            self.servers[name] = server
            self.nodes[name] = NodeRef(
                name=NodeName(name),
                provider_id=f"openstack:///{server}",
                addresses=tuple(Address("InternalIP", one["ip_address"]) for one in addresses),
            )
        return self.nodes[name]

    def delete_machine(self, name: str) -> bool:
        self.api.delete_server(self.servers[name])
        return True

    def crash_when(self, chance: Callable[[], bool], error: BaseException = CRASH) -> None:
        self.api.chance, self.api.error = chance, error

    def overlook_when(self, chance: Callable[[], bool]) -> bool:
        self.api.overlooks = chance
        return True

    def _balancers(self) -> list[Record]:
        return [one for one in self.api.records("loadbalancers") if not _is_leaving(one)]

    def _of(self, owner: Owner) -> list[Record]:
        return [one for one in self._balancers() if _owner(one) == owner]

    def vandalise(self, owner: Owner) -> None:
        for one in self._of(owner):
            path = f"/v2.0/lbaas/loadbalancers/{one['id']}"
            self.api.finish(one["id"])
            call = Call(
                service=Service.LOAD_BALANCER,
                method="DELETE",
                path=path,
                query=(("cascade", "true"),),
            )
            assert self.api.reply(call).status < 300
            self.api.finish(one["id"])

    def tamper(self, owner: Owner) -> bool:
        for one in self._of(owner):
            for ref in one["listeners"] if self.abilities.source_ranges else ():
                ranges = {"allowed_cidrs": ["198.51.100.0/24"]}
                self.api.change("listeners", ref["id"], ranges)
            for ref in one["pools"]:
                self.api.change("pools", ref["id"], {"members": []})
            return True
        return False

    def furnish(self, name: str, mark: Owner | None) -> str | None:
        method = "SOURCE_IP_PORT" if self.config.lb_provider == "ovn" else "ROUND_ROBIN"
        pool = {"name": "pool", "protocol": "TCP", "lb_algorithm": method}
        listener = {"protocol": "TCP", "protocol_port": 1, "default_pool": pool}
        balancer = self.api.add_balancer(
            name=name,
            vip_subnet_id=self.subnet,
            tags=list(tags_of(mark)) if mark else [],
            listeners=[listener],
        )
        port = self.api.record("loadbalancers", balancer)["vip_port_id"]
        self.api.add_floating_ip(self.public, port=port)
        return balancer

    def unmark(self, owner: Owner) -> bool:
        """What the Go manager creates has only its own tags."""
        marks = tags_of(owner)
        for kind in ("loadbalancers", "listeners", "pools", "floatingips", "security-groups"):
            for one in self.api.records(kind):
                if set(marks) <= set(one["tags"]):
                    tags = [tag for tag in one["tags"] if not tag.startswith("pileus.dev/")]
                    self.api.change(kind, one["id"], {"tags": tags})
        return True

    def built(self) -> Mapping[Owner, Built]:
        return {_owner(one) or Owner("", one["id"]): self._built(one) for one in self._balancers()}

    def _built(self, balancer: Record) -> Built:
        listeners = [self.api.record("listeners", one["id"]) for one in balancer["listeners"]]
        listeners = [one for one in listeners if not _is_leaving(one)]
        pools = [self._pool(one["default_pool_id"]) for one in listeners]
        return Built(
            ports=frozenset(one["protocol_port"] for one in listeners),
            members=self._members(pools),
            sticky_seconds=_stickiness(pools),
            source_ranges=_ranges(listeners),
            families=_families(balancer),
            address=next(
                (
                    one["floating_ip_address"]
                    for one in self.api.records("floatingips")
                    if one["port_id"] == balancer["vip_port_id"]
                ),
                "",
            ),
        )

    def _pool(self, id_: str | None) -> Record | None:
        return self.api.record("pools", id_) if id_ else None

    def _members(self, pools: list[Record | None]) -> frozenset[str]:
        """Nodes to which every port leads."""
        sets = [frozenset(map(self._name, pool["members"])) if pool else None for pool in pools]
        filled = [one for one in sets if one is not None]
        return reduce(lambda one, other: one & other, filled) - {""} if filled else frozenset()

    def _name(self, ref: Record) -> str:
        member = self.api.record("members", ref["id"])
        return "" if _is_leaving(member) else str(member["name"])

    def strays(self) -> int:
        """Marks that are there twice, floating IPs without port, pools without listener, and ports
        of load balancers that do not exist.
        """
        marks = [one for balancer in self._balancers() if (one := _owner(balancer))]
        pools = [one for one in self.api.records("pools") if not _is_leaving(one)]
        unused = sum(not one["listeners"] for one in pools)
        floating = [one for one in self.api.records("floatingips") if one["tags"]]
        ports = {one["vip_port_id"] for one in self._balancers()}
        lost = sum(one["port_id"] not in ports for one in floating)
        used = {one["vip_port_id"] for one in self.api.records("loadbalancers")}
        vips = [one["id"] for one in self.api.records("ports") if one["device_owner"] == "Octavia"]
        return len(marks) - len(set(marks)) + unused + lost + len(set(vips) - used)


def _is_leaving(record: Record) -> bool:
    return bool(record["provisioning_status"] == "PENDING_DELETE")


def _families(balancer: Record) -> frozenset[str]:
    vips = (balancer["vip_address"], *(one["ip_address"] for one in balancer["additional_vips"]))
    return frozenset("IPv6" if ":" in one else "IPv4" for one in vips)


def _owner(balancer: Record) -> Owner | None:
    cluster, services = cluster_of(balancer["tags"]), sorted(services_of(balancer["tags"]))
    return Owner(cluster, services[0]) if cluster and services else None


def _stickiness(pools: list[Record | None]) -> int | None:
    """Half of the pools being sticky is neither on nor off."""
    found = {bool(one["session_persistence"]) for one in pools if one}
    if found == {True}:
        return DEFAULT_AFFINITY_SECONDS
    return -1 if len(found) > 1 else None


def _ranges(listeners: list[Record]) -> frozenset[str]:
    found = {frozenset(one["allowed_cidrs"] or OPEN) for one in listeners}
    if len(found) > 1:
        return frozenset({"different"})
    return next(iter(found), OPEN) - OPEN
