"""The controllers by name. Each is called differently in five places; here is the one table.

Dashboards, RBAC rules and alerts depend on every column.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNames:
    """What one controller is called, and where."""

    canonical: str
    """In `--controllers`, in health checks and in the leader migration file."""
    alias: str
    """The older word that `--controllers` takes as well."""
    event_source: str
    metric: str
    """The `name` label of `running_managed_controllers`; empty: not counted."""
    identity: str
    """Service account, and suffix of the user agent."""
    off_by_default: bool = False
    """Whether `*` leaves it off."""


NODE = ControllerNames(
    canonical="cloud-node-controller",
    alias="cloud-node",
    event_source="cloud-node-controller",
    metric="cloud-node",
    identity="node-controller",
)
LIFECYCLE = ControllerNames(
    canonical="cloud-node-lifecycle-controller",
    alias="cloud-node-lifecycle",
    event_source="cloud-node-lifecycle-controller",
    metric="cloud-node-lifecycle",
    identity="node-controller",
)
SERVICE = ControllerNames(
    canonical="service-lb-controller",
    alias="service",
    event_source="service-controller",
    metric="service",
    identity="service-controller",
)
ROUTE = ControllerNames(
    canonical="node-route-controller",
    alias="route",
    event_source="route_controller",
    metric="route",
    identity="route-controller",
)
IPAM = ControllerNames(
    canonical="node-ipam-controller",
    alias="nodeipam",
    event_source="cidrAllocator",
    metric="",
    identity="node-controller",
    # In most clusters --allocate-node-cidrs is given although kube-controller-manager does the
    # work; two allocators would give out the same ranges.
    off_by_default=True,
)

SSH_KEYS = ControllerNames(
    canonical="ssh-key-controller",
    alias="ssh-key",
    event_source="ssh-key-controller",
    metric="ssh-key",
    identity="ssh-key-controller",
)

ALL = (NODE, LIFECYCLE, SERVICE, ROUTE, IPAM, SSH_KEYS)
_BY_ALIAS = {names.alias: names.canonical for names in ALL}


def resolve(entry: str) -> str:
    """Return the entry of a list with an alias replaced; a leading `-` is kept."""
    bare = entry.removeprefix("-")
    return entry.removesuffix(bare) + _BY_ALIAS.get(bare, bare)


def is_enabled(name: str, entries: Sequence[str], *, off_by_default: bool = False) -> bool:
    """Tell whether `entries` switch `name` (canonical) on; the first match decides."""
    for entry in map(resolve, entries):
        if entry == name:
            return True
        if entry == f"-{name}":
            return False
    return "*" in entries and not off_by_default


def is_running(names: ControllerNames, entries: Sequence[str]) -> bool:
    """Tell whether `entries` switch one of our own controllers on."""
    return is_enabled(names.canonical, entries, off_by_default=names.off_by_default)


def unknown(entries: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return the words that name nothing, as they were written but without their `-`."""
    names = frozenset(known)
    return tuple(
        entry.removeprefix("-")
        for entry in entries
        if entry != "*" and resolve(entry).removeprefix("-") not in names
    )
