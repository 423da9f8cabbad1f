"""The state of the whole cloud, its operations, and their input: time, randomness, settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from random import Random
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from pileus.cloud.errors import NotFound, QuotaExceeded, Rejected
from pileus.suggest import did_you_mean
from pileus_lab.local.model.records import (
    Balancer,
    Cluster,
    Fault,
    Key,
    Machine,
    Pools,
    Quota,
    Route,
    Snapshot,
    Volume,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MachineType:
    cpus: int
    memory_gib: int
    volumes: int
    """How many volumes can be attached at once."""


TYPES: Mapping[str, MachineType] = MappingProxyType({
    "small": MachineType(cpus=2, memory_gib=4, volumes=4),
    "medium": MachineType(cpus=4, memory_gib=16, volumes=8),
    "large": MachineType(cpus=16, memory_gib=64, volumes=16),
})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one cloud; constant."""

    region: str = "local-1"
    zones: tuple[str, ...] = ("local-1a", "local-1b", "local-1c")
    internal_pool: str = "127.77.0.0/16"
    external_pool: str = "127.79.0.0/16"
    internal_pool_v6: str = "fd77::/64"
    balancer_pool: str = "127.78.0.0/16"
    balancer_pool_v6: str = "::1/128"
    """Loopback has one IPv6 address: balancers share it, on different ports."""
    boot_seconds: float = 0.0
    settle_seconds: float = 0.0
    """Seconds that a balancer is busy after each change."""
    shares_volumes: bool = False
    """Whether a volume can be attached to several machines."""
    deletes_attached: bool = False
    """Whether a volume can be deleted while it is attached."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a transition may use besides the state."""

    now: float
    """Seconds since the epoch."""
    chance: Random
    settings: Settings = field(default_factory=Settings)
    health: Mapping[tuple[str, str], str] | None = None
    """Returns the result of real health checks of a member; None: there are none."""
    doom: str = ""
    """Why changes of balancers that are accepted now will fail; empty: they will not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    serial: int = 0
    """How many objects were created so far."""
    machines: Mapping[str, Machine] = field(default_factory=dict[str, Machine])
    balancers: Mapping[str, Balancer] = field(default_factory=dict[str, Balancer])
    routes: Mapping[str, Route] = field(default_factory=dict[str, Route])
    volumes: Mapping[str, Volume] = field(default_factory=dict[str, Volume])
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict[str, Snapshot])
    keys: Mapping[str, Key] = field(default_factory=dict[str, Key])
    clusters: Mapping[str, Cluster] = field(default_factory=dict[str, Cluster])
    faults: Mapping[str, Fault] = field(default_factory=dict[str, Fault])
    pools: Mapping[str, Pools] = field(default_factory=dict[str, Pools])
    """The pools that were picked when the cloud was first started, by kind of network."""
    quota: Quota = field(default_factory=Quota)

    def machine(self, name_or_id: str) -> Machine:
        """Raises `NotFound` with a suggestion."""
        found = self.machines.get(name_or_id) or self.machine_named(name_or_id)
        if found is None:
            names = [machine.name for machine in self.machines.values()]
            raise NotFound(f'no instance "{name_or_id}"{did_you_mean(name_or_id, names)}')
        return found

    def machine_named(self, name: str) -> Machine | None:
        return next((one for one in self.machines.values() if one.name == name), None)


def identified(state: State, prefix: str, moment: Moment) -> tuple[State, str]:
    """Returns a new ID that was never used and cannot be guessed from the last one."""
    serial = state.serial + 1
    return replace(
        state, serial=serial
    ), f"{prefix}-{serial:04x}{moment.chance.getrandbits(32):08x}"


def with_item(items: Mapping[str, T], key: str, item: T) -> Mapping[str, T]:
    return {**items, key: item}


def without(items: Mapping[str, T], key: str) -> Mapping[str, T]:
    return {k: v for k, v in items.items() if k != key}


def hold_quota(name: str, wanted: int, limit: int) -> None:
    """Raises `QuotaExceeded` with the command that raises the limit."""
    if wanted > limit:
        raise QuotaExceeded(
            f"quota {name} would be exceeded: {wanted} requested, {limit} allowed; "
            f"delete some, or raise it with `pileus local quota set {name}={wanted}`"
        )


def family_of(address: str) -> str:
    return f"IPv{ip_address(address).version}"


def give(pool: str, start: int, is_free: Callable[[str], bool]) -> str:
    """Returns the first free address from the `start`-th on.

    With a rising `start`, freed addresses are not reused at once. Raises `QuotaExceeded` if none
    is left.
    """
    network = ip_network(pool)
    first = int(network.network_address)
    size = min(network.num_addresses, 2**16)
    usable = range(1, size - 1) if size > 2 else range(size)  # noqa: PLR2004 -- network, broadcast
    for step in range(len(usable)):
        address = str(_same_kind(pool)(first + usable[(start + step) % len(usable)]))
        if is_free(address):
            return address
    raise QuotaExceeded(f"no free address in {pool}; delete an object that has one")


def _same_kind(pool: str) -> Callable[[int], object]:
    return type(ip_network(pool).network_address)


def check_requested(address: str, pools: tuple[str, ...]) -> str:
    """Returns the address in canonical form.

    Raises `Rejected` if it is not an address, or not in the pools.
    """
    try:
        parsed = ip_address(address)
    except ValueError as error:
        raise Rejected(f'"{address}" is not an IP address') from error
    for pool in map(ip_network, pools):
        if parsed.version == pool.version and parsed in pool:
            return str(parsed)
    raise Rejected(f"{parsed} is not in the balancers' pools {', '.join(pools)}")


A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Request(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True
):
    """Base of the values in operations."""


class Operation(Protocol[A_co]):
    NAME: ClassVar[str]
    """`capability.method`; the name of the operation in requests and faults."""
    WRITES: ClassVar[bool]
    ANSWER: ClassVar[Any]
    """Type of the answer, for decoding."""

    def step(self, state: State, moment: Moment) -> tuple[State, A_co]:
        """Returns the next state and the answer. Pure except for `moment.chance`.

        Raises `CloudError`; then nothing has changed.
        """
        ...
