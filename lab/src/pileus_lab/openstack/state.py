"""The state of a modelled OpenStack project, and what changes in it by itself.

Records are stored as OpenStack returns them. Nothing ever changes a record or a table in place, so
that an old state stays what it was, and unchanged parts are shared between states.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from types import MappingProxyType
from typing import Any
from uuid import UUID

from pileus.providers.openstack.api import Call

Record = Mapping[str, Any]
Table = Mapping[str, Record]
NONE: Table = MappingProxyType({})

PROJECT = "0123456789abcdef0123456789abcdef"
EXTENSIONS = (
    "allowed-address-pairs",
    "dns-integration",
    "external-net",
    "extraroute",
    "extraroute-atomic",
    "fip-port-details",
    "floatingip-distributed",
    "port-security",
    "revision-if-match",
    "router",
    "security-group",
    "standard-attr-description",
    "standard-attr-revisions",
    "standard-attr-tag",
    "standard-attr-timestamp",
)
OCTAVIA_VERSION = 27
"""Octavia 2.27: the minor version of the newest API."""
DEFAULT_GROUP = "de1a0000-0000-4000-8000-000000000001"
"""ID of the security group `default`, which every project has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this OpenStack is installed."""

    region: str = "RegionOne"
    extensions: frozenset[str] = frozenset(EXTENSIONS)
    """Extensions of Neutron, by alias."""
    lb_providers: tuple[str, ...] = ("amphora", "ovn")
    """Providers of Octavia; the first is the default."""
    lb_flavors: frozenset[str] | None = None
    """IDs of Octavia's flavors; None: every ID is accepted."""
    octavia_minor: int = OCTAVIA_VERSION
    """Minor version of the newest API of Octavia: tags need 5, allowed CIDRs 12, …"""
    pending_seconds: float = 0.0
    """Seconds for which a load balancer is pending after a change. 0: until the next request."""
    failover_seconds: float = 0.0
    """Seconds after which an administrator fails over a load balancer whose change failed. 0: no
    administrator does."""
    page_limit: int = 1000
    """Items on one page of Nova and Cinder, at most."""
    list_limit: int = 0
    """Items on one page of Neutron and Octavia, at most; 0: not limited."""
    volume_zones: tuple[str, ...] = ("nova",)
    """Availability zones of Cinder; the first is the default."""
    volume_types: tuple[str, ...] = ("__DEFAULT__",)
    """Volume types of Cinder; the first is the default."""
    quotas: Mapping[str, int] = field(default_factory=dict[str, int])
    """By collection, such as `floatingips` or `loadbalancers`; missing: not limited."""
    may_choose_addresses: bool = False
    """Whether a floating IP may be created with a given address: by default only by admins."""
    max_routes: int = 10_000
    """Routes of one router."""


@dataclass(frozen=True, slots=True)
class Due:
    """A change that happens by itself at that time."""

    at: float
    collection: str
    id: str
    failure: str = ""
    """Why it ends in the state ERROR; empty: it succeeds."""
    size: int = 0
    """Of a volume that is extended: GiB in the end."""


def _start() -> Mapping[str, Table]:
    return {"security-groups": {DEFAULT_GROUP: default_group()}}


def default_group() -> Record:
    return {
        "id": DEFAULT_GROUP,
        "name": "default",
        "stateful": True,
        "project_id": PROJECT,
        "tenant_id": PROJECT,
        "description": "Default security group",
        "shared": False,
        "security_group_rules": [],
        "tags": [],
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "revision_number": 1,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything in one project."""

    settings: Settings = field(default_factory=Settings)
    tables: Mapping[str, Table] = field(default_factory=_start)
    """Records by ID, by collection: `ports`, `loadbalancers`, `servers`, …"""
    due: tuple[Due, ...] = ()
    hosts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Number of the address that was assigned last, by subnet."""

    def table(self, collection: str) -> Table:
        return self.tables.get(collection, NONE)

    def get(self, collection: str, id_: str) -> Record | None:
        return self.table(collection).get(id_)

    def put(self, collection: str, *records: Record) -> "State":
        table = {**self.table(collection), **{one["id"]: one for one in records}}
        return replace(self, tables={**self.tables, collection: table})

    def change(self, collection: str, id_: str, changes: Record) -> "State":
        """Returns the state with these fields of an existing record changed."""
        return self.put(collection, {**self.table(collection)[id_], **changes})

    def without(self, collection: str, ids: Iterable[str]) -> "State":
        gone = frozenset(ids)
        if gone.isdisjoint(self.table(collection)):
            return self
        table = {key: one for key, one in self.table(collection).items() if key not in gone}
        return replace(self, tables={**self.tables, collection: table})

    def later(self, due: Due) -> "State":
        return replace(self, due=tuple(sorted((*self.due, due), key=lambda one: one.at)))


@dataclass(frozen=True, slots=True)
class Moment:
    """What a step may use besides the state."""

    now: float
    """Seconds since the epoch."""
    chance: Random
    at_work: float = 0.0
    """Extra seconds for which a change stays pending."""
    doom: str = ""
    """Why changes that are accepted now fail later; empty: they do not."""

    def new_id(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128), version=4))

    def seconds(self) -> str:
        """The time as Nova, Cinder and Octavia write it."""
        return datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Request:
    """A call that was matched with a route."""

    call: Call
    moment: Moment
    ids: tuple[str, ...] = ()
    """Variable parts of the path."""

    @property
    def query(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, value in self.call.query:
            found.setdefault(name, []).append(value)
        return found

    def body(self, key: str) -> dict[str, Any]:
        """Returns the object under `key` of the body. Raises `Fault` if there is none."""
        body: Any = self.call.body
        if not isinstance(body, Mapping) or not isinstance(body.get(key), Mapping):  # pyright: ignore[reportUnknownMemberType] -- JSON
            raise Fault(400, {"message": f"the body has no object {key}"})
        return dict(body[key])  # pyright: ignore[reportUnknownArgumentType] -- JSON


class Fault(Exception):
    """An answer that refuses a request. Never leaves `handle`."""

    def __init__(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> None:  # noqa: ANN401 -- JSON
        super().__init__(status)
        self.reply = Reply(status, body, headers or {})


Handler = Callable[[State, Request], tuple[State, Reply]]
