"""The state of the whole cloud, and what a transition is given beside it: time, chance, settings.

States are never changed; a transition returns a new one that shares all that stayed the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import TypeVar

from pileus.cloud.errors import NotFound, QuotaExceeded
from pileus.suggest import did_you_mean
from pileus_lab.local.model.records import (
    Balancer,
    Cluster,
    Fault,
    Key,
    Machine,
    Quota,
    Route,
    Volume,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MachineType:
    cpus: int
    memory_gib: int
    volumes: int
    """How many can be attached at once."""


TYPES: Mapping[str, MachineType] = MappingProxyType({
    "small": MachineType(cpus=2, memory_gib=4, volumes=4),
    "medium": MachineType(cpus=4, memory_gib=16, volumes=8),
    "large": MachineType(cpus=16, memory_gib=64, volumes=16),
})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What one cloud is like; the same for its whole life."""

    region: str = "local-1"
    zones: tuple[str, ...] = ("local-1a", "local-1b", "local-1c")
    internal_pool: str = "127.77.0.0/16"
    external_pool: str = "127.79.0.0/16"
    internal_pool_v6: str = "fd77::/64"
    balancer_pool: str = "127.78.0.0/16"
    balancer_pool_v6: str = "::1/128"
    """On loopback there is one address only: balancers share it, on different ports."""
    boot_seconds: float = 0.0
    settle_seconds: float = 0.0
    """How long a balancer is busy after each change."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a transition may know beside the state."""

    now: float
    """Seconds since the epoch."""
    chance: Random
    settings: Settings = field(default_factory=Settings)
    health: Mapping[tuple[str, str], str] | None = None
    """What real health checks say of a balancer's member; None: there are none."""
    doom: str = ""
    """Why changes of balancers that are accepted now fail in the end; empty: they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    serial: int = 0
    """How many objects were ever made."""
    machines: Mapping[str, Machine] = field(default_factory=dict[str, Machine])
    balancers: Mapping[str, Balancer] = field(default_factory=dict[str, Balancer])
    routes: Mapping[str, Route] = field(default_factory=dict[str, Route])
    volumes: Mapping[str, Volume] = field(default_factory=dict[str, Volume])
    keys: Mapping[str, Key] = field(default_factory=dict[str, Key])
    clusters: Mapping[str, Cluster] = field(default_factory=dict[str, Cluster])
    faults: Mapping[str, Fault] = field(default_factory=dict[str, Fault])
    quota: Quota = field(default_factory=Quota)

    def machine(self, name_or_id: str) -> Machine:
        """Errors: `NotFound`, with the name that was probably meant."""
        found = self.machines.get(name_or_id) or self.machine_named(name_or_id)
        if found is None:
            names = [machine.name for machine in self.machines.values()]
            raise NotFound(f'no instance "{name_or_id}"{did_you_mean(name_or_id, names)}')
        return found

    def machine_named(self, name: str) -> Machine | None:
        return next((one for one in self.machines.values() if one.name == name), None)


def identified(state: State, prefix: str, moment: Moment) -> tuple[State, str]:
    """A new id: never given before, and not to be guessed from the last one."""
    serial = state.serial + 1
    return replace(
        state, serial=serial
    ), f"{prefix}-{serial:04x}{moment.chance.getrandbits(32):08x}"


def with_item(items: Mapping[str, T], key: str, item: T) -> Mapping[str, T]:
    return {**items, key: item}


def without(items: Mapping[str, T], key: str) -> Mapping[str, T]:
    return {k: v for k, v in items.items() if k != key}


def hold_quota(name: str, wanted: int, limit: int) -> None:
    """Errors: `QuotaExceeded` that says how to raise it."""
    if wanted > limit:
        raise QuotaExceeded(
            f"quota {name} would be exceeded: {wanted} wanted, {limit} allowed; "
            f"delete some, or raise it with `pileus local quota set {name}={wanted}`"
        )
