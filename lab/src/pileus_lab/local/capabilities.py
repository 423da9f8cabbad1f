"""The capabilities of the provider contract, each implemented with calls of the cloud's API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pileus.cloud import model as contract
from pileus.cloud.balancer import Owner, Wish
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    NotFound,
    Unavailable,
    errors_of,
)
from pileus.cloud.model import (
    Absent,
    Address,
    AddressType,
    Failure,
    Found,
    Instance,
    InstanceId,
    InstanceState,
    NodeKeys,
    NodeName,
    NodeRef,
    SshKey,
    Zone,
)
from pileus_lab.local import balancer_plan
from pileus_lab.local.api import Api, instance_id, provider_id
from pileus_lab.local.balancer_plan import Change, Seen, mark_of
from pileus_lab.local.model.account import AddKey, Description, ListClusters, ListKeys, RemoveKey
from pileus_lab.local.model.balancers import (
    DeleteBalancer,
    ListBalancers,
    OutlineBalancers,
    StampBalancer,
)
from pileus_lab.local.model.machines import ListMachines
from pileus_lab.local.model.records import Key, Machine, Mark, Outline, Page, Power, R
from pileus_lab.local.model.routes import CreateRoute, DeleteRoute, ListRoutes, normal

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
        return Absent(
            f"{_identity(node)} is not among the {len(page.items)} instances of the local cloud"
        )

    def _instance(self, machine: Machine) -> Instance:
        return Instance(
            id=InstanceId(machine.id),
            provider_id=provider_id(machine.id),
            type=machine.type,
            zone=machine.zone,
            region=self.region,
            addresses=addresses_of(machine),
            names=frozenset({machine.name}),
            labels=machine.labels,
            state=STATES[machine.power],
        )


def _identity(node: NodeRef) -> str:
    """Returns what the machine of a node was looked for by."""
    if node.provider_id:
        return node.provider_id
    return f"system UUID {node.system_uuid}" if node.system_uuid else f'name "{node.name}"'


def addresses_of(machine: Machine) -> tuple[Address, ...]:
    return (
        *(Address(AddressType.INTERNAL_IP, ip) for ip in machine.internal),
        *(Address(AddressType.EXTERNAL_IP, ip) for ip in machine.external),
        Address(AddressType.HOSTNAME, machine.name),
        Address(AddressType.INTERNAL_DNS, f"{machine.name}.{machine.zone}.local.internal"),
    )


def machine_of(node: NodeRef, machines: tuple[Machine, ...]) -> Machine | None:
    """Finds a machine by provider ID if the node has one, else by UUID: names are reused.

    A machine with the node's name but another UUID is a different machine, perhaps from a stale
    list.
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

        return await errors_of(routes, create)

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

        return await errors_of(routes, delete)


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
        raise NotFound(f'the local cloud has no cluster "{cluster}"')


@dataclass(frozen=True, slots=True)
class LocalZones:
    zone: str
    """The zone in which this process runs."""
    cloud: Description

    async def current(self) -> Zone:
        return Zone(self.zone or self.cloud.zones[0], self.cloud.region)


def whole(page: Page[R], what: str) -> tuple[R, ...]:
    if not page.is_complete:
        raise Unavailable(f"the local cloud returned an incomplete list of {what}")
    return page.items


@dataclass(frozen=True, slots=True)
class LocalSshKeys:
    api: Api

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        keys = whole(await self.api.call(ListKeys()), "keys")
        ours = {_plain(key) for key in keys if _comment(key) == mark(cluster)}
        found = NodeKeys(frozenset(ours), frozenset({_plain(key) for key in keys} - ours))
        absent = await self._absent(nodes)
        return {
            node.name: Failure(absent[node.name]) if node.name in absent else found
            for node in nodes
        }

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        for key in keys:
            text = f"{key.public_key} {mark(cluster)}"
            await self.api.call(AddKey(user=key.user, public_key=text))
        return await self._absent(nodes)

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        for key in keys:
            await self.api.call(
                RemoveKey(user=key.user, public_key=key.public_key, only_comment=mark(cluster))
            )
        return await self._absent(nodes)

    async def _absent(self, nodes: Sequence[NodeRef]) -> dict[NodeName, CloudError]:
        machines = whole(await self.api.call(ListMachines(fresh=True)), "instances")
        return {
            node.name: NotFound(f"the local cloud has no instance for node {node.name}")
            for node in nodes
            if machine_of(node, machines) is None
        }


def mark(cluster: str) -> str:
    """The comment of keys that were added for the cluster."""
    return f"pileus:{cluster}"


def _plain(key: Key) -> SshKey:
    return SshKey(key.user, " ".join(key.public_key.split()[:2]))


def _comment(key: Key) -> str:
    return " ".join(key.public_key.split()[2:])


@dataclass(frozen=True, slots=True)
class LocalBalancers:
    api: Api

    async def owners(self, cluster: str) -> frozenset[Owner]:
        outlines = whole(await self.api.call(OutlineBalancers()), "balancers")
        return frozenset(
            Owner(one.mark.cluster, one.mark.owner)
            for one in outlines
            if one.mark.cluster == cluster and one.mark != Mark()
        )

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        seen = _identified(wishes, await self.api.call(OutlineBalancers()))
        ids = {
            found.id
            for wish in wishes
            if (found := seen.get(wish.owner, Seen(wish.owner)).subject) is not None
            if deep or balancer_plan.needs_parts(wish, seen[wish.owner])
        }
        return await self._with_parts(seen, ids) if ids else seen

    async def _with_parts(self, seen: Mapping[Owner, Seen], ids: set[str]) -> Mapping[Owner, Seen]:
        """Returns the balancers with these IDs, with their parts. Missing ones are unknown."""
        page = await self.api.call(ListBalancers(ids=tuple(sorted(ids))))
        read = {one.id: one for one in page.items}
        return {
            owner: one.with_parts(read)
            for owner, one in seen.items()
            if one.subject is None or one.subject.id not in ids or one.subject.id in read
        }

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return balancer_plan.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        step = change.step
        if isinstance(step, DeleteBalancer):
            await self.api.call(step)
            return Seen(seen.owner)
        if isinstance(step, StampBalancer) and not balancer_plan.is_complete(change, seen):
            return seen
        try:
            return balancer_plan.seen_of(seen.owner, await self.api.call(step))
        except NotFound as error:
            raise Conflict(f"{error}: it was deleted meanwhile; observe again") from error

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid


def _identified(wishes: Sequence[Wish], page: Page[Outline]) -> dict[Owner, Seen]:
    """Returns the balancers by owner; from an incomplete list, only those that it contains."""
    by_mark = {one.mark: one for one in page.items}
    by_id = {one.id: one for one in page.items}
    seen: dict[Owner, Seen] = {}
    for wish in wishes:
        owner = wish.owner
        found = by_mark.get(mark_of(owner))
        if found is not None or page.is_complete:
            seen[owner] = Seen(owner, found, by_id.get(wish.adopts) if found is None else None)
    return seen
