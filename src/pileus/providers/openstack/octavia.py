"""Load balancers of Octavia: what we read of them, and typed requests.

    balancers = await Octavia(client).balancers(tag="pileus.dev/cluster=…")
    await Octavia(client).set_members(pool.id, members)

Octavia refuses every write to a load balancer that is not `ACTIVE` (409, `Conflict`), and every
accepted write makes it `PENDING_UPDATE` until the change has reached the provider. No request here
waits for that.
"""

from asyncio import Lock
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from pileus.cloud.errors import NotFound
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import Client, Query, Service, decoded, field_of

T = TypeVar("T")
ROOT = "/v2.0/lbaas"
LISTS = {
    "loadbalancer": "loadbalancers",
    "listener": "listeners",
    "pool": "pools",
    "healthmonitor": "healthmonitors",
}
"""The name of an object in a request, and of its list."""
Body = Mapping[str, object]


class Provisioning:
    """Values of `provisioning_status`. Only `ACTIVE` and `ERROR` are final."""

    ACTIVE = "ACTIVE"
    ERROR = "ERROR"
    DELETED = "DELETED"


class Reference(msgspec.Struct, frozen=True):
    """A part of another object, by its ID."""

    id: str


class AdditionalVip(msgspec.Struct, frozen=True):
    subnet_id: str | None = None
    ip_address: str | None = None
    port_id: str | None = None


class LoadBalancer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None = ""
    description: str | None = ""
    project_id: str = ""
    provisioning_status: str = Provisioning.ACTIVE
    operating_status: str = ""
    vip_address: str | None = None
    vip_port_id: str | None = None
    vip_subnet_id: str | None = None
    vip_network_id: str | None = None
    additional_vips: tuple[AdditionalVip, ...] = ()
    provider: str = ""
    flavor_id: str | None = None
    availability_zone: str | None = None
    tags: tuple[str, ...] = ()
    """Octavia returns them in any order."""
    listeners: tuple[Reference, ...] = ()
    pools: tuple[Reference, ...] = ()
    created_at: str | None = None
    updated_at: str | None = None
    """Set by every change of the load balancer, of its parts and of its operating status."""


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None = ""
    protocol: str
    protocol_port: int
    provisioning_status: str = Provisioning.ACTIVE
    operating_status: str = ""
    connection_limit: int = -1
    default_pool_id: str | None = None
    default_tls_container_ref: str | None = None
    insert_headers: Mapping[str, str] | None = None
    allowed_cidrs: tuple[str, ...] | None = None
    """None: not restricted, or Octavia is older than 2.12."""
    timeout_client_data: int | None = None
    timeout_member_connect: int | None = None
    timeout_member_data: int | None = None
    timeout_tcp_inspect: int | None = None
    tags: tuple[str, ...] = ()
    loadbalancers: tuple[Reference, ...] = ()


class SessionPersistence(msgspec.Struct, frozen=True):
    type: str
    persistence_timeout: int | None = None


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None = ""
    protocol: str
    lb_algorithm: str = ""
    session_persistence: SessionPersistence | None = None
    provisioning_status: str = Provisioning.ACTIVE
    operating_status: str = ""
    healthmonitor_id: str | None = None
    members: tuple[Reference, ...] = ()
    """A member keeps its ID while its address and port stay the same."""
    listeners: tuple[Reference, ...] = ()
    loadbalancers: tuple[Reference, ...] = ()
    tags: tuple[str, ...] = ()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Unique in its pool by address and port."""

    id: str = ""
    name: str | None = ""
    address: str
    protocol_port: int
    subnet_id: str | None = None
    monitor_port: int | None = None
    weight: int = 1
    """0: it keeps its connections and gets no new ones."""
    backup: bool = False
    provisioning_status: str = Provisioning.ACTIVE
    operating_status: str = ""
    tags: tuple[str, ...] = ()
    updated_at: str | None = None


class HealthMonitor(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None = ""
    type: str
    delay: int
    timeout: int
    max_retries: int
    max_retries_down: int = 3
    url_path: str | None = None
    http_method: str | None = None
    expected_codes: str | None = None
    pools: tuple[Reference, ...] = ()
    provisioning_status: str = Provisioning.ACTIVE


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None = ""
    address: str = ""
    protocol_port: int = 0
    provisioning_status: str = ""
    operating_status: str = ""


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None = ""
    provisioning_status: str = ""
    operating_status: str = ""
    members: tuple[MemberStatus, ...] = ()


class ListenerStatus(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None = ""
    provisioning_status: str = ""
    operating_status: str = ""
    pools: tuple[PoolStatus, ...] = ()


class StatusTree(msgspec.Struct, frozen=True, kw_only=True):
    """States of a load balancer and of all its parts, in one answer."""

    id: str
    provisioning_status: str = ""
    operating_status: str = ""
    listeners: tuple[ListenerStatus, ...] = ()


class _Statuses(msgspec.Struct, frozen=True):
    loadbalancer: StatusTree


@dataclass(frozen=True, slots=True)
class Octavia:
    """Requests to Octavia. Each method is one request, or one per page of a list."""

    client: Client

    async def balancers(
        self, *, tags: Iterable[str] = (), name: str = "", id_: str = ""
    ) -> tuple[LoadBalancer, ...]:
        """Returns the load balancers of the project that have all of these tags."""
        query = _query(tags=",".join(tags), name=name, id=id_)
        return await self._list("loadbalancer", LoadBalancer, query)

    async def balancer(self, id_: str) -> LoadBalancer:
        """Raises `NotFound` if there is none."""
        return await self._get("loadbalancer", id_, LoadBalancer)

    async def status_tree(self, balancer: str) -> StatusTree:
        path = f"{ROOT}/loadbalancers/{balancer}/status"
        found = await self.client.get(Service.LOAD_BALANCER, path, "statuses", _Statuses)
        return found.loadbalancer

    async def listeners(self, balancer: str = "") -> tuple[Listener, ...]:
        """Returns the listeners of one load balancer; by default of all."""
        return await self._list("listener", Listener, _query(loadbalancer_id=balancer))

    async def pools(self, balancer: str = "") -> tuple[Pool, ...]:
        """Returns the pools of one load balancer; by default of all."""
        return await self._list("pool", Pool, _query(loadbalancer_id=balancer))

    async def listener(self, id_: str) -> Listener:
        """Raises `NotFound` if there is none."""
        return await self._get("listener", id_, Listener)

    async def pool(self, id_: str) -> Pool:
        """Raises `NotFound` if there is none."""
        return await self._get("pool", id_, Pool)

    async def with_default_pools(
        self, listed: tuple[Pool, ...], listeners: Iterable[Listener]
    ) -> tuple[Pool, ...]:
        """Returns the pools, and those of the listeners that a list lacks, which are read by ID."""
        known = {one.id for one in listed}
        found: list[Pool] = []
        for id_ in sorted({one.default_pool_id or "" for one in listeners} - {*known, ""}):
            with suppress(NotFound):
                found.append(await self.pool(id_))
        return (*listed, *found)

    async def members(self, pool: str) -> tuple[Member, ...]:
        path = f"{ROOT}/pools/{pool}/members"
        return await self.client.all_pages(Service.LOAD_BALANCER, path, "members", Member)

    async def health_monitor(self, id_: str) -> HealthMonitor:
        """Raises `NotFound` if there is none."""
        return await self._get("healthmonitor", id_, HealthMonitor)

    async def create_balancer(self, body: Body) -> LoadBalancer:
        """Create a load balancer with everything in it (`listeners` with their pools)."""
        return await self._create("loadbalancer", body, LoadBalancer)

    async def create_part(self, kind: str, body: Body) -> None:
        """Create a `listener`, `pool` or `healthmonitor`.

        A pool with `listener_id` becomes the default pool of that listener.
        """
        await self._create(kind, body, Reference)

    async def update_balancer(self, id_: str, body: Body) -> LoadBalancer:
        return await self._update("loadbalancer", id_, body, LoadBalancer)

    async def update_part(self, kind: str, id_: str, body: Body) -> None:
        await self._update(kind, id_, body, Reference)

    async def delete_part(self, kind: str, id_: str) -> None:
        """Delete a part; a missing one succeeds.

        The pool of a listener stays. Members and monitor of a pool are deleted with it.
        """
        await self._delete(kind, id_)

    async def set_members(self, pool: str, members: Sequence[Body]) -> None:
        """Make these the only members of the pool. Those that stay keep their connections."""
        path = f"{ROOT}/pools/{pool}/members"
        await self.client.send("PUT", Service.LOAD_BALANCER, path, {"members": list(members)})

    async def create_member(self, pool: str, body: Body) -> None:
        path = f"{ROOT}/pools/{pool}/members"
        await self.client.send("POST", Service.LOAD_BALANCER, path, {"member": body})

    async def delete_member(self, pool: str, id_: str) -> None:
        """A missing one succeeds."""
        with suppress(NotFound):
            path = f"{ROOT}/pools/{pool}/members/{id_}"
            await self.client.send("DELETE", Service.LOAD_BALANCER, path)

    async def delete_balancer(self, id_: str, *, cascade: bool = True) -> None:
        """Delete a load balancer, by default with all its parts. A missing one succeeds."""
        await self._delete("loadbalancer", id_, _query(cascade="true" if cascade else ""))

    async def _list(self, name: str, kind: type[T], query: Query) -> tuple[T, ...]:
        key = LISTS[name]
        return await self.client.all_pages(
            Service.LOAD_BALANCER, f"{ROOT}/{key}", key, kind, query=query
        )

    async def _get(self, name: str, id_: str, kind: type[T]) -> T:
        path = f"{ROOT}/{LISTS[name]}/{id_}"
        return await self.client.get(Service.LOAD_BALANCER, path, name, kind)

    async def _create(self, name: str, body: Body, kind: type[T]) -> T:
        return await self._write("POST", f"{ROOT}/{LISTS[name]}", name, body, kind)

    async def _update(self, name: str, id_: str, body: Body, kind: type[T]) -> T:
        return await self._write("PUT", f"{ROOT}/{LISTS[name]}/{id_}", name, body, kind)

    async def _write(self, method: str, path: str, name: str, body: Body, kind: type[T]) -> T:
        answer = await self.client.send(method, Service.LOAD_BALANCER, path, {name: body})
        return decoded(field_of(answer, name, path), kind, path)

    async def _delete(self, name: str, id_: str, query: Query = ()) -> None:
        path = f"{ROOT}/{LISTS[name]}/{id_}"
        with suppress(NotFound):
            await self.client.send("DELETE", Service.LOAD_BALANCER, path, query=query)


class Listeners:
    """Listeners for an observation: of one load balancer, or of many by one list of all."""

    def __init__(self, octavia: Octavia, *, of_many: bool) -> None:
        self._octavia, self._of_many = octavia, of_many
        self._lock = Lock()
        self._all: tuple[Listener, ...] | None = None

    async def of(self, balancer: LoadBalancer) -> tuple[Listener, ...]:
        """Returns the listeners. One that the load balancer has and a list lacks is read by ID."""
        listed = await self._listed(balancer.id)
        missing = {one.id for one in balancer.listeners} - {one.id for one in listed}
        found: list[Listener] = []
        for id_ in sorted(missing):
            with suppress(NotFound):
                found.append(await self._octavia.listener(id_))
        return (*listed, *found)

    async def _listed(self, balancer: str) -> tuple[Listener, ...]:
        if not self._of_many:
            return await self._octavia.listeners(balancer)
        async with self._lock:
            if self._all is None:
                self._all = await self._octavia.listeners()
        return tuple(one for one in self._all if Reference(balancer) in one.loadbalancers)


def by_balancer(pools: Iterable[Pool]) -> Mapping[str, tuple[Pool, ...]]:
    """Returns the pools by the ID of their load balancer."""
    found: defaultdict[str, list[Pool]] = defaultdict(list)
    for pool in pools:
        for one in pool.loadbalancers:
            found[one.id].append(pool)
    return {balancer: tuple(each) for balancer, each in found.items()}


def _query(**filters: str) -> Query:
    """Returns the filters that are set."""
    return tuple((name, value) for name, value in filters.items() if value)
