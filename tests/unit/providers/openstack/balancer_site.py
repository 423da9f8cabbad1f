"""The provider's load balancers on the model of OpenStack, as the service controller uses them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pileus.cloud.balancer import BalancerSpec, Listener, Owner, Transport, Wish
from pileus.cloud.errors import Conflict
from pileus.cloud.model import Address, NodeName, NodeRef
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.balancer_seen import Seen
from pileus.providers.openstack.balancer_steps import Change
from pileus.providers.openstack.balancers import OpenStackBalancers
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Record, Settings

PASSES = 60
PORTS = (
    Listener(port=80, node_port=30080, position=0),
    Listener(port=443, node_port=30443, position=1),
    Listener(port=53, node_port=30053, transport=Transport.UDP, position=2),
)


def owner_of(service: str = "web", cluster: str = "cluster-1") -> Owner:
    return Owner(cluster, f"uid-of-{service}")


class Site:
    """A project with an external network, a router, a network, and servers."""

    def __init__(
        self,
        nodes: int = 2,
        settings: Settings | None = None,
        cluster_name: str = "kubernetes",
        **config: Any,
    ) -> None:
        self.api = ModelApi(settings)
        self.public, self.public_subnet = self.api.add_network(
            "public", "203.0.113.0/24", external=True
        )
        self.network, self.subnet = self.api.add_network("private", "10.0.0.0/16")
        self.api.add_router([self.subnet], external=self.public)
        self.nodes = [self.add_node(f"node-{n}") for n in range(1, nodes + 1)]
        self.config = OpenStackConfig(load_balancer=LoadBalancer(**config))
        self.cluster_name = cluster_name
        self.balancers = self.process()

    def process(self) -> OpenStackBalancers:
        """Returns the provider of a new process."""
        return OpenStackBalancers(Client(self.api), self.config, self.cluster_name, self)

    def now(self) -> datetime:
        """The clock of the provider: the time of the model."""
        return datetime.fromtimestamp(self.api.now, UTC)

    def restart(self) -> None:
        self.balancers = self.process()
        self.api.calls.clear()

    def add_node(self, name: str) -> NodeRef:
        server = self.api.add_server(name, self.network)
        address = self.api.port_of(server)["fixed_ips"][0]["ip_address"]
        return NodeRef(
            name=NodeName(name),
            provider_id=f"openstack:///{server}",
            addresses=(Address("InternalIP", address),),
        )

    def spec(self, nodes: Sequence[NodeRef] | None = None, **fields: Any) -> BalancerSpec:
        given: dict[str, Any] = {"listeners": frozenset(PORTS), **fields}
        return BalancerSpec(members=frozenset(self.nodes if nodes is None else nodes), **given)

    def wish(self, spec: BalancerSpec | None = None, service: str = "web", **fields: Any) -> Wish:
        given: dict[str, Any] = {"owner": owner_of(service), "namespace": "default", **fields}
        given = {"service": service, **given}
        return Wish(**given, spec=spec or self.spec())

    async def seen(self, wish: Wish, *, deep: bool = False) -> Seen:
        found = (await self.balancers.observe([wish], deep=deep))[wish.owner]
        assert isinstance(found, Seen), found
        return found

    async def changes(self, wish: Wish, *, deep: bool = False) -> tuple[Change, ...]:
        return self.balancers.changes(wish, await self.seen(wish, deep=deep))

    async def plan(self, wish: Wish, *, deep: bool = True) -> list[str]:
        """Returns the lines of a plan."""
        return [f"{one.effect} {one.summary}" for one in await self.changes(wish, deep=deep)]

    async def settle(self, wish: Wish, *, deep: bool = False) -> Seen:
        """Pass after pass, until nothing is left to change and Octavia is not busy."""
        for _ in range(PASSES):
            seen = await self.seen(wish, deep=deep)
            changes = self.balancers.changes(wish, seen)
            if not changes and not seen.is_busy:
                return seen
            await self.apply(changes, seen)
            self.api.now += 1
        raise AssertionError(f"not reached: {wish}")

    async def apply(self, changes: Sequence[Change], seen: Seen) -> None:
        try:
            for change in changes:
                seen = await self.balancers.apply(change, seen)
                if seen.is_busy:
                    return
        except Conflict:
            return

    async def delete(self, wish: Wish) -> None:
        await self.settle(replace(wish, spec=None, adopts=""))

    @property
    def writes(self) -> list[str]:
        return [f"{call.method} {call.path}" for call in self.api.calls if call.writes]

    @property
    def reads(self) -> list[Call]:
        return [call for call in self.api.calls if not call.writes]

    def balancer(self, name: str = "kube_service_kubernetes_default_web") -> Record:
        (found,) = [one for one in self.api.records("loadbalancers") if one["name"] == name]
        return found

    def listeners(self) -> dict[tuple[int, str], Record]:
        found = self.api.records("listeners")
        return {(one["protocol_port"], one["protocol"]): one for one in found}

    def pool(self, port: int, protocol: str = "TCP") -> Record:
        return self.api.record("pools", self.listeners()[port, protocol]["default_pool_id"])

    def members(self, port: int, protocol: str = "TCP") -> dict[str, Record]:
        found = [self.api.record("members", o["id"]) for o in self.pool(port, protocol)["members"]]
        return {one["name"]: one for one in found}

    def octavia(self, method: str, path: str, body: object = None) -> Any:
        """A request of someone else."""
        return self.api.must(Service.LOAD_BALANCER, method, f"/v2.0/lbaas/{path}", body)
