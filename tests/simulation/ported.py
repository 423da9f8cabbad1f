"""The local cloud behind a provider in the shape of the Go framework."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TextIO

from pileus.classic.adapter import Adapted
from pileus.classic.errors import RetryError
from pileus.classic.interface import InstanceMetadata
from pileus.cloud.abilities import Abilities, Requests
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import NodeName, NodeRef
from pileus.kube.model.core_v1 import (
    NAMESPACES,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    Service,
    ServiceSpec,
)
from pileus_lab.local.api import SCHEME, Permitted, instance_id, provider_id
from pileus_lab.local.capabilities import addresses_of, machine_of
from pileus_lab.local.model.balancers import (
    AddMembers,
    CreateBalancer,
    DeleteBalancer,
    ListBalancers,
    PutPort,
    Readdress,
    RemoveMembers,
    RemovePort,
    SetTraffic,
)
from pileus_lab.local.model.machines import ListMachines
from pileus_lab.local.model.records import (
    Balancer,
    Machine,
    Mark,
    Member,
    Port,
    Power,
    Probe,
    Traffic,
)
from pileus_lab.local.model.state import family_of
from pileus_lab.simulation.clouds import deeds
from pileus_lab.simulation.clouds.interface import Api
from pileus_lab.simulation.clouds.local import SimulatedLocal

BUSY = 2.0
AT_WORK = 10.0


class SimulatedPorted(SimulatedLocal):
    """Hands that change a balancer from outside go unnoticed here, as they do in Go."""

    @asynccontextmanager
    async def connect(self, api: Api) -> AsyncGenerator[Cloud]:
        async def new_ported(_: TextIO | None) -> Ported:
            return Ported(Permitted(api))

        async with Adapted(new_ported)(ProviderConfig()) as cloud:  # type: ignore[arg-type]
            # A full check asks for each balancer, as `pileus.classic.balancers` says.
            yield replace(cloud, abilities=Abilities(requests=Requests(per_balancer=1)))

    def operation(self, state: Any, deed: deeds.CloudDeed) -> Any:
        is_unnoticed = isinstance(deed, deeds.AddPort | deeds.RemoveMember | deeds.DisownBalancer)
        return None if is_unnoticed else super().operation(state, deed)


@dataclass
class Ported:
    """All of its methods are async: in a simulation there are no threads."""

    api: Api
    cluster: str = ""

    async def initialize(self, client_builder: Any, stop: object) -> None:
        """As many a ported provider does, it reads who it works for."""
        client = client_builder.client("ported")
        self.cluster = (await client.get(NAMESPACES, "kube-system")).metadata.uid

    def load_balancer(self) -> "Ported":
        return self

    def instances_v2(self) -> "Ported":
        return self

    def routes(self) -> None:
        """The routes of such providers say nothing of their cluster: some are never deleted."""

    def instances(self) -> None:
        return None

    def zones(self) -> None:
        return None

    def clusters(self) -> None:
        return None

    def provider_name(self) -> str:
        return SCHEME

    def has_cluster_id(self) -> bool:
        return True

    async def instance_exists(self, node: Node) -> bool:
        return await self._machine(node) is not None

    async def instance_shutdown(self, node: Node) -> bool:
        machine = await self._machine(node)
        return machine is not None and machine.power is Power.STOPPED

    async def instance_metadata(self, node: Node) -> InstanceMetadata | None:
        machine = await self._machine(node)
        if machine is None:
            return None
        return InstanceMetadata(
            provider_id=provider_id(machine.id),
            instance_type=machine.type,
            zone=machine.zone,
            node_addresses=[
                NodeAddress(type=one.type, address=one.address) for one in addresses_of(machine)
            ],
        )

    async def _machine(self, node: Node) -> Machine | None:
        info = node.status and node.status.node_info
        ref = NodeRef(
            name=NodeName(node.metadata.name),
            provider_id=(node.spec and node.spec.provider_id) or "",
            system_uuid=(info and info.system_uuid) or "",
        )
        return machine_of(ref, await self._all(ListMachines()))

    async def get_load_balancer(self, _: str, service: Service) -> LoadBalancerStatus | None:
        found = await self._found(service)
        return _status(found) if found else None

    async def get_load_balancer_name(self, _: str, service: Service) -> str:
        return f"a{service.metadata.uid}"

    async def ensure_load_balancer(
        self, _: str, service: Service, nodes: Sequence[Node]
    ) -> LoadBalancerStatus:
        wanted = self._wanted(service, nodes)
        found = await self._found(service)
        if found is None:
            found = await self.api.call(wanted)
        return _status(_finished(await self._take(_steps(found, wanted), found)))

    async def update_load_balancer(self, _: str, service: Service, nodes: Sequence[Node]) -> None:
        found = await self._found(service)
        if found is None:
            raise RetryError("it is gone", BUSY)
        _finished(await self._take(_member_steps(found, self._wanted(service, nodes)), found))

    async def ensure_load_balancer_deleted(self, _: str, service: Service) -> None:
        found = await self._found(service)
        if found is not None:
            await self.api.call(DeleteBalancer(balancer=found.id))

    async def _take(self, steps: Sequence[Any], found: Balancer) -> Balancer:
        for step in steps:
            found = await self.api.call(step)
        return found

    async def _found(self, service: Service) -> Balancer | None:
        mark = Mark(cluster=self.cluster, owner=service.metadata.uid)
        balancers = await self._all(ListBalancers())
        return next((one for one in balancers if one.mark == mark), None)

    def _wanted(self, service: Service, nodes: Sequence[Node]) -> CreateBalancer:
        spec = service.spec
        assert spec
        return CreateBalancer(
            name=f"a{service.metadata.uid}",
            mark=Mark(cluster=self.cluster, owner=service.metadata.uid),
            ports=tuple(
                Port(port=one.port, node_port=one.node_port or 0) for one in spec.ports or ()
            ),
            members=tuple(map(_member, nodes)),
            traffic=Traffic(
                sources=tuple(sorted(spec.load_balancer_source_ranges or ())),
                sticky_seconds=_sticky_seconds(spec),
                probe=Probe(node_port=port) if (port := spec.health_check_node_port) else None,
            ),
            families=tuple(spec.ip_families or ("IPv4",)),
            requested=spec.load_balancer_ip or "",
        )

    async def _all(self, listing: Any) -> Any:
        page = await self.api.call(listing)
        if not page.is_complete:
            raise ConnectionError("the list broke off")
        return page.items


def _finished(balancer: Balancer) -> Balancer:
    """What is still at work may fail: who does not come back never knows."""
    if balancer.is_busy:
        raise RetryError("the cloud is at work on it", AT_WORK)
    return balancer


def _steps(found: Balancer, wanted: CreateBalancer) -> Sequence[Any]:
    ports = set(found.ports)
    return [
        *(
            RemovePort(balancer=found.id, port=one.port)
            for one in found.ports
            if one.port not in {port.port for port in wanted.ports}
        ),
        *(PutPort(balancer=found.id, port=one) for one in wanted.ports if one not in ports),
        *(
            [Readdress(balancer=found.id, families=wanted.families, requested=wanted.requested)]
            * (tuple(map(family_of, found.addresses)) != wanted.families)
        ),
        *(
            [SetTraffic(balancer=found.id, traffic=wanted.traffic)]
            * (found.traffic != wanted.traffic)
        ),
        *_member_steps(found, wanted),
    ]


def _member_steps(found: Balancer, wanted: CreateBalancer) -> Sequence[Any]:
    new = tuple(one for one in wanted.members if one not in found.members)
    gone = tuple(sorted({one.name for one in found.members} - {one.name for one in wanted.members}))
    return [
        *([AddMembers(balancer=found.id, members=new)] if new else []),
        *([RemoveMembers(balancer=found.id, names=gone)] if gone else []),
    ]


def _member(node: Node) -> Member:
    given = (node.spec and node.spec.provider_id) or ""
    return Member(name=node.metadata.name, machine=instance_id(given) or "")


def _status(balancer: Balancer) -> LoadBalancerStatus:
    return LoadBalancerStatus(
        ingress=tuple(LoadBalancerIngress(ip=one) for one in balancer.addresses)
    )


def _sticky_seconds(spec: ServiceSpec) -> int | None:
    config = spec.session_affinity_config and spec.session_affinity_config.client_ip
    return config.timeout_seconds if spec.session_affinity == "ClientIP" and config else None
