"""The provider `bench`: the simulated cloud of the benchmark (tools/bench/go/cloud).

Written with the contract as any provider is. The cloud has calls for many instances, load balancers
and routes at once, which this provider uses; the Go framework asks for one object at a time.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec import Struct

from pileus.cloud.abilities import Abilities, Limits
from pileus.cloud.balancer import (
    Balancer,
    BalancerState,
    Effect,
    Ingress,
    Listener,
    Owner,
    Part,
    Wish,
)
from pileus.cloud.errors import CloudError, Conflict, NotFound
from pileus.cloud.fingerprint import digest
from pileus.cloud.http import Http, HttpSettings, http_client
from pileus.cloud.interface import Cloud, ProviderConfig
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
    Route,
)

NAME = "bench"
CONNECTIONS = 256
T = TypeVar("T")


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """The file of `--cloud-config`."""

    endpoint: str
    limits: dict[str, float] = {}
    """Fields of `Limits` that this cloud documents; empty: the default ones."""


class Machine(Struct, frozen=True):
    name: str
    id: str
    address: str
    zone: str
    region: str
    type: str
    stopped: bool = False


class Machines(Struct, frozen=True):
    instances: list[Machine]


class Port(Struct, frozen=True, order=True, rename="camel"):
    port: int
    node_port: int
    transport: str


class Record(Struct, frozen=True, rename="camel"):
    """A load balancer. `count` is the number of its members, which are sent if asked for."""

    uid: str
    cluster: str
    service: str
    ip: str
    ports: tuple[Port, ...]
    count: int
    spec_tag: str
    members_tag: str
    members: tuple[str, ...] = ()


class Records(Struct, frozen=True):
    balancers: list[Record]


class RouteRecord(Struct, frozen=True):
    destination: str
    target: str
    cluster: str


class RouteRecords(Struct, frozen=True):
    routes: list[RouteRecord]


class Put(Struct, frozen=True, rename="camel"):
    """The body that creates or replaces a load balancer, or its members."""

    members: msgspec.Raw
    members_tag: str
    cluster: str = ""
    service: str = ""
    ports: tuple[Port, ...] = ()
    spec_tag: str = ""


@dataclass(frozen=True, slots=True)
class Api:
    http: Http

    async def send(self, method: str, path: str, body: object, kind: type[T]) -> T:
        content = b"" if body is None else msgspec.json.encode(body)
        answer = await self.http.request(method, path, body=content)
        return msgspec.json.decode(answer.body, type=kind)


@asynccontextmanager
async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
    given = msgspec.json.decode(config.text or "{}", type=Config)
    settings = HttpSettings(base_url=given.endpoint, connections=CONNECTIONS)
    async with http_client(settings) as http:
        api = Api(http)
        yield Cloud(
            name=NAME,
            instances=Instances(api),
            balancers=Balancers(api),
            routes=Routes(api),
            abilities=Abilities(
                marks_routes=True, limits=msgspec.convert(given.limits, Limits, strict=False)
            ),
        )


@dataclass(frozen=True, slots=True)
class Instances:
    api: Api

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        del fresh
        asked = {"names": [node.name for node in nodes]}
        found = await self.api.send("POST", "/v1/instances/find", asked, Machines)
        known = {one.name: one for one in found.instances}
        return {node.name: _found(known.get(node.name)) for node in nodes}


def _found(machine: Machine | None) -> Found:
    if machine is None:
        return Absent("instances/find does not name it")
    return Instance(
        id=InstanceId(machine.id),
        provider_id=f"{NAME}://{machine.id}",
        type=machine.type,
        zone=machine.zone,
        region=machine.region,
        addresses=(
            Address(AddressType.INTERNAL_IP, machine.address),
            Address(AddressType.HOSTNAME, machine.name),
        ),
        state=InstanceState.STOPPED if machine.stopped else InstanceState.RUNNING,
    )


@dataclass(frozen=True, slots=True)
class Seen:
    owner: Owner
    found: Record | None

    @property
    def balancer(self) -> Balancer | None:
        if self.found is None:
            return None
        return Balancer(
            id=self.found.uid,
            state=BalancerState.READY,
            ingress=(Ingress(ip=self.found.ip),),
            members=self.found.count,
            owner=self.owner,
        )


@dataclass(frozen=True, slots=True)
class Change:
    effect: Effect
    part: Part
    summary: str
    put: Put | None = None
    """The new state; None: it is deleted."""


@dataclass(frozen=True, slots=True)
class Members:
    """A set of members as it is sent. A thousand load balancers share one."""

    names: tuple[str, ...]
    encoded: msgspec.Raw
    tag: str


@lru_cache(maxsize=4)
def members_of(nodes: frozenset[NodeRef]) -> Members:
    names = tuple(sorted(node.name for node in nodes))
    return Members(names, msgspec.Raw(msgspec.json.encode(names)), digest(list(names)))


@lru_cache(maxsize=4096)
def ports_of(listeners: frozenset[Listener]) -> tuple[Port, ...]:
    return tuple(sorted(Port(one.port, one.node_port, one.transport.value) for one in listeners))


@dataclass(frozen=True, slots=True)
class Balancers:
    """Load balancers with two tags: digests of the ports and of the members that were sent last.

    A quick check compares the tags, and a full check everything. Both calls that change something
    replace it whole, so that neither needs to know the members that were there before.
    """

    api: Api

    async def owners(self, cluster: str) -> frozenset[Owner]:
        found = await self._find(None, members=False)
        return frozenset(Owner(cluster, one.uid) for one in found if one.cluster == cluster)

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        found = await self._find([wish.owner.uid for wish in wishes], members=deep)
        known = {one.uid: one for one in found}
        return {wish.owner: _seen(wish, known.get(wish.owner.uid), deep=deep) for wish in wishes}

    async def _find(self, uids: list[str] | None, *, members: bool) -> list[Record]:
        asked = {"uids": uids, "members": members}
        return (await self.api.send("POST", "/v1/balancers/find", asked, Records)).balancers

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        record = seen.found
        if wish.spec is None:
            gone = Change(Effect.DELETE, Part.WHOLE, f"load balancer {wish.owner.uid}")
            return () if record is None else (gone,)
        members, ports = members_of(wish.spec.members), ports_of(wish.spec.listeners)
        put = Put(
            members.encoded,
            members.tag,
            cluster=wish.owner.cluster,
            service=f"{wish.namespace}/{wish.service}",
            ports=ports,
            spec_tag=digest([(one.port, one.node_port, one.transport) for one in ports]),
        )
        if record is None:
            return (Change(Effect.CREATE, Part.WHOLE, f"load balancer {wish.owner.uid}", put),)
        if record.spec_tag != put.spec_tag:
            return (Change(Effect.UPDATE, Part.WHOLE, f"load balancer {record.uid}", put),)
        if record.members_tag != put.members_tag:
            return (Change(Effect.UPDATE, Part.MEMBERS, f"members of {record.uid}", put),)
        return ()

    async def apply(self, change: Change, seen: Seen) -> Seen:
        path = f"/v1/balancers/{seen.owner.uid}"
        if change.put is None:
            await self.api.send("DELETE", path, None, dict)
            return replace(seen, found=None)
        if change.part is Part.WHOLE:
            return replace(seen, found=await self.api.send("PUT", path, change.put, Record))
        body = Put(change.put.members, change.put.members_tag)
        try:
            changed = await self.api.send("PUT", f"{path}/members", body, Record)
        except NotFound as error:
            raise Conflict(f"{error}: it was deleted meanwhile; observe again") from error
        return replace(seen, found=changed)

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid


def _seen(wish: Wish, record: Record | None, *, deep: bool) -> Seen:
    """A full check that finds other parts than the tags say takes the tags away."""
    if record is None or not deep or wish.spec is None:
        return Seen(wish.owner, record)
    if record.ports != ports_of(wish.spec.listeners):
        record = msgspec.structs.replace(record, spec_tag="")
    if tuple(sorted(record.members)) != members_of(wish.spec.members).names:
        record = msgspec.structs.replace(record, members_tag="")
    return Seen(wish.owner, msgspec.structs.replace(record, members=()))


@dataclass(frozen=True, slots=True)
class Routes:
    api: Api

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        del cluster
        found = await self.api.send("GET", "/v1/routes", None, RouteRecords)
        return [
            Route(destination=one.destination, target=NodeName(one.target), cluster=one.cluster)
            for one in found.routes
        ]

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        await self._send("/v1/routes", cluster, routes)
        return {}

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        await self._send("/v1/routes/delete", cluster, routes)
        return {}

    async def _send(self, path: str, cluster: str, routes: Sequence[Route]) -> None:
        records = [RouteRecord(one.destination, one.target or "", cluster) for one in routes]
        await self.api.send("POST", path, RouteRecords(records), dict)
