"""The capabilities of the contract, each a thin face of the cloud's API."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from pileus.cloud import model as contract
from pileus.cloud.errors import CloudError, NotFound, Throttled, Unavailable
from pileus.cloud.model import (
    Absent,
    Address,
    AddressType,
    Found,
    Instance,
    InstanceId,
    InstanceState,
    NodeName,
    NodeRef,
    VolumeId,
    VolumeSpec,
    Zone,
)
from pileus_lab.local.api import Api
from pileus_lab.local.identity import instance_id, provider_id
from pileus_lab.local.model.account import Description, ListClusters
from pileus_lab.local.model.machines import ListMachines
from pileus_lab.local.model.records import Machine, Page, Power, R, Volume
from pileus_lab.local.model.routes import CreateRoute, DeleteRoute, ListRoutes, normal
from pileus_lab.local.model.volumes import (
    AttachVolume,
    CreateVolume,
    DeleteVolume,
    DetachVolume,
    ListVolumes,
    ResizeVolume,
)

STATES: Mapping[Power, InstanceState] = {
    Power.PENDING: InstanceState.PENDING,
    Power.RUNNING: InstanceState.RUNNING,
    Power.STOPPED: InstanceState.STOPPED,
}


@dataclass(frozen=True, slots=True)
class LocalInstances:
    api: Api
    region: str

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        if not nodes:
            return {}
        page = await self.api.call(ListMachines(fresh=fresh))
        found = {node.name: machine_of(node, page.items) for node in nodes}
        if not fresh and None in found.values():
            page = await self.api.call(ListMachines(fresh=True))
            found |= {
                node.name: machine_of(node, page.items)
                for node in nodes
                if found[node.name] is None
            }
        return {
            node.name: answer
            for node in nodes
            if (answer := self._answer(node, found[node.name], page)) is not None
        }

    def _answer(self, node: NodeRef, machine: Machine | None, page: Page[Machine]) -> Found | None:
        if machine is not None:
            return self._instance(machine)
        if not page.is_complete:
            return None
        asked = node.provider_id or f'name "{node.name}"'
        return Absent(f"{asked} is none of the {len(page.items)} instances of the local cloud")

    def _instance(self, machine: Machine) -> Instance:
        return Instance(
            id=InstanceId(machine.id),
            provider_id=provider_id(machine.id),
            type=machine.type,
            zone=machine.zone,
            region=self.region,
            addresses=addresses_of(machine),
            labels=machine.labels,
            state=STATES[machine.power],
        )


def addresses_of(machine: Machine) -> tuple[Address, ...]:
    return (
        *(Address(AddressType.INTERNAL_IP, ip) for ip in machine.internal),
        *(Address(AddressType.EXTERNAL_IP, ip) for ip in machine.external),
        Address(AddressType.HOSTNAME, machine.name),
        Address(AddressType.INTERNAL_DNS, f"{machine.name}.{machine.zone}.local.internal"),
    )


def machine_of(node: NodeRef, machines: tuple[Machine, ...]) -> Machine | None:
    """By provider ID alone if the node has one, else by UUID: a name may have been given anew.

    A machine of that name with another UUID is another one, which an old list may still tell.
    """
    if node.provider_id:
        wanted = instance_id(node.provider_id)
        return next((one for one in machines if one.id == wanted), None)
    if node.system_uuid:
        wanted = node.system_uuid.lower()
        return next((one for one in machines if one.uuid == wanted), None)
    return next((one for one in machines if one.name == node.name), None)


@dataclass(frozen=True, slots=True)
class LocalRoutes:
    api: Api

    async def list_routes(self, cluster: str) -> Sequence[contract.Route]:  # noqa: ARG002 -- all of them
        page = await self.api.call(ListRoutes())
        return [
            contract.Route(
                destination=route.destination,
                target=NodeName(route.target),
                name=f"{route.cluster}-{route.destination}" if route.cluster else "",
                blackhole=route.is_blackhole,
                cluster=route.cluster,
            )
            for route in whole(page, "routes")
        ]

    async def create(
        self, cluster: str, routes: Sequence[contract.Route]
    ) -> Mapping[contract.Route, CloudError]:
        async def create(route: contract.Route) -> None:
            target = route.target or ""
            await self.api.call(
                CreateRoute(destination=route.destination, target=target, cluster=cluster)
            )

        return await _each(routes, create)

    async def delete(
        self, cluster: str, routes: Sequence[contract.Route]
    ) -> Mapping[contract.Route, CloudError]:
        async def delete(route: contract.Route) -> None:
            await self.api.call(
                DeleteRoute(
                    destination=normal(route.destination),
                    cluster=cluster,
                    target=route.target or "",
                )
            )

        return await _each(routes, delete)


async def _each(
    routes: Sequence[contract.Route], act: Callable[[contract.Route], Awaitable[None]]
) -> dict[contract.Route, CloudError]:
    """The errors of those that failed. Who is told to wait asks for no other either."""
    errors: dict[contract.Route, CloudError] = {}
    for number, route in enumerate(routes):
        try:
            await act(route)
        except Throttled as error:
            return errors | dict.fromkeys(routes[number:], error)
        except CloudError as error:
            errors[route] = error
    return errors


@dataclass(frozen=True, slots=True)
class LocalVolumes:
    api: Api
    region: str

    async def list_volumes(
        self, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, contract.Volume]:
        page = await self.api.call(ListVolumes())
        volumes = (self._volume(one) for one in whole(page, "volumes"))
        return {one.id: one for one in volumes if ids is None or one.id in ids}

    async def create(self, spec: VolumeSpec) -> contract.Volume:
        wanted = CreateVolume(
            mark=spec.mark,
            size_gib=spec.size_gib,
            type=spec.type,
            zone=spec.zone,
            labels=dict(spec.labels),
        )
        return self._volume(await self.api.call(wanted))

    async def delete(self, volume: VolumeId) -> None:
        await self.api.call(DeleteVolume(volume=volume))

    async def attach(self, volume: VolumeId, instance: InstanceId) -> contract.Volume:
        return self._volume(await self.api.call(AttachVolume(volume=volume, machine=instance)))

    async def detach(self, volume: VolumeId, instance: InstanceId) -> None:
        await self.api.call(DetachVolume(volume=volume, machine=instance))

    async def resize(self, volume: VolumeId, size_gib: int) -> contract.Volume:
        return self._volume(await self.api.call(ResizeVolume(volume=volume, size_gib=size_gib)))

    def _volume(self, volume: Volume) -> contract.Volume:
        return contract.Volume(
            id=VolumeId(volume.id),
            spec=VolumeSpec(
                mark=volume.mark,
                size_gib=volume.size_gib,
                type=volume.type,
                zone=volume.zone,
                labels=volume.labels,
            ),
            attached_to=InstanceId(volume.machine) if volume.machine else None,
            device=volume.device,
            topology={
                "topology.kubernetes.io/zone": volume.zone,
                "topology.kubernetes.io/region": self.region,
            },
        )


@dataclass(frozen=True, slots=True)
class LocalClusters:
    api: Api

    async def list_clusters(self) -> Sequence[str]:
        page = await self.api.call(ListClusters())
        return [cluster.name for cluster in whole(page, "clusters")]

    async def master(self, cluster: str) -> str:
        page = await self.api.call(ListClusters())
        for one in whole(page, "clusters"):
            if one.name == cluster:
                return one.master
        raise NotFound(f'the local cloud knows no cluster "{cluster}"')


@dataclass(frozen=True, slots=True)
class LocalZones:
    zone: str
    """Where this program runs."""
    cloud: Description

    async def current(self) -> Zone:
        return Zone(self.zone or self.cloud.zones[0], self.cloud.region)


def whole(page: Page[R], what: str) -> tuple[R, ...]:
    if not page.is_complete:
        raise Unavailable(f"the local cloud gave only a part of its {what}")
    return page.items
