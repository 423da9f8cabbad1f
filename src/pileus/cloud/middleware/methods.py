"""The table of all methods of the cloud contract, with what the middleware must know of each.

A new method of the contract is one row of `METHODS`. The row alone gives it a call budget, the
fence for writes, metrics, a deadline, an answer check, batching, faults and the read-only mode.
"""

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from dataclasses import field
from enum import Enum, auto
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

from pileus.cloud.balancer import Balancers, Change, Effect, Part, Wish
from pileus.cloud.interface import (
    Cloud,
    Clusters,
    Instances,
    Routes,
    SshKeys,
    Zones,
)
from pileus.cloud.middleware import answers, volume_answers
from pileus.cloud.middleware.answers import Checked
from pileus.cloud.model import NodeRef
from pileus.cloud.volume import Volumes
from pileus.dataclass import dataclass, replace

AnyFunction = Callable[..., Any]
AnyBalancers = Balancers[Any, Any]


class Kind(Enum):
    """What a method does. Decides about the fence and the class of its deadline."""

    READ = auto()
    WRITE = auto()
    """Fenced, refused in read-only mode, with the longer deadline."""
    PURE = auto()
    """Neither waits nor does I/O: only its errors and its answer are checked."""


class Priority(Enum):
    """Which calls leave first when the call budget cannot serve all at once."""

    FIRST = auto()
    """Lookups of machines: new nodes wait for them, and lost ones are detected by them."""
    NORMAL = auto()
    MEMBERS = auto()
    """Updates of members alone: the load balancer serves already."""
    LAST = auto()
    """Periodic searches."""


@dataclass(frozen=True, slots=True)
class Batch:
    """How concurrent calls of a method are merged into one."""

    key: Callable[[Any], Hashable]
    """Returns the key under which the answer has the outcome of an item."""
    mode: str
    """The boolean parameter in which calls must agree to be merged."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row: a method of the contract."""

    capability: str = field(kw_only=False)
    """The field of `Cloud` that has the method."""
    function: AnyFunction = field(kw_only=False)
    """The method of the protocol: its name and its parameters."""
    kind: Kind = Kind.READ
    about: str | tuple[str, ...] = ""
    """The parameter that the answer is checked against, or several. If the (last) one is a
    collection, its size is the number of items of the call, which counts in metrics and lengthens
    the deadline."""
    check: Callable[[Any, object], Checked[Any]]
    """Checks an answer: is called with the argument `about` (a tuple, if it names several) and the
    answer."""
    has_outcomes: bool = False
    """Whether the answer is a mapping that may have a failure for some of the items."""
    batch: Batch | None = None
    priority: Callable[[Any], Priority] = lambda _: Priority.NORMAL
    """Returns the priority of a call by its argument `about`."""

    @cached_property
    def name(self) -> str:
        return f"{self.capability}.{self.attribute}"

    @cached_property
    def attribute(self) -> str:
        return self.function.__name__

    @property
    def writes(self) -> bool:
        return self.kind is Kind.WRITE

    def asked(self, arguments: Sequence[object], named: Mapping[str, object]) -> object:
        """Returns the argument `about` of a call, None if there is none; of several, a tuple."""
        found = tuple(
            named.get(name, arguments[place] if place < len(arguments) else None)
            for name, place in self._places
        )
        return found if isinstance(self.about, tuple) else found[0] if found else None

    def items(self, asked: object) -> int:
        """Returns how many items a call has that asks for this."""
        if isinstance(self.about, tuple):
            return count(cast("tuple[object, ...]", asked)[-1])
        return count(asked)

    @cached_property
    def _places(self) -> tuple[tuple[str, int], ...]:
        """The names of the parameters `about`, and their positions."""
        parameters = list(inspect.signature(self.function).parameters)[1:]
        names = self.about if isinstance(self.about, tuple) else (self.about,) if self.about else ()
        return tuple((name, parameters.index(name)) for name in names)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a provider's method."""

    provider: str
    method: Method
    items: int = 1
    priority: Priority = Priority.NORMAL

    @property
    def name(self) -> str:
        return self.method.name


def count(asked: object) -> int:
    """Returns how many items a call has that asks for this."""
    return len(asked) if isinstance(asked, Sized) and not isinstance(asked, str) else 1


def _first(_: object) -> Priority:
    return Priority.FIRST


def _last(_: object) -> Priority:
    return Priority.LAST


def _of_change(change: Change) -> Priority:
    is_update = change.part is Part.MEMBERS and change.effect is not Effect.DELETE
    return Priority.MEMBERS if is_update else Priority.NORMAL


def node_name(node: NodeRef) -> Hashable:
    return node.name


def wish_owner(wish: Wish) -> Hashable:
    return wish.owner


METHODS: tuple[Method, ...] = (
    Method(
        "instances",
        Instances.find,
        about="nodes",
        check=answers.check_found,
        has_outcomes=True,
        batch=Batch(node_name, mode="fresh"),
        priority=_first,
    ),
    Method(
        "balancers",
        AnyBalancers.owners,
        about="cluster",
        check=answers.check_owners,
        priority=_last,
    ),
    Method(
        "balancers",
        AnyBalancers.observe,
        about="wishes",
        check=answers.check_observed,
        has_outcomes=True,
        batch=Batch(wish_owner, mode="deep"),
    ),
    Method("balancers", AnyBalancers.changes, kind=Kind.PURE, check=answers.check_changes),
    Method(
        "balancers",
        AnyBalancers.apply,
        kind=Kind.WRITE,
        about="change",
        check=answers.check_seen,
        priority=_of_change,
    ),
    Method("balancers", AnyBalancers.lock_key, kind=Kind.PURE, check=answers.check_text),
    Method("routes", Routes.list_routes, check=answers.check_routes),
    Method(
        "routes",
        Routes.create,
        kind=Kind.WRITE,
        about="routes",
        check=answers.check_route_errors,
        has_outcomes=True,
    ),
    Method(
        "routes",
        Routes.delete,
        kind=Kind.WRITE,
        about="routes",
        check=answers.check_route_errors,
        has_outcomes=True,
    ),
    Method(
        "volumes",
        Volumes.list_volumes,
        about=("cluster", "ids"),
        check=volume_answers.check_volumes,
    ),
    Method(
        "volumes",
        Volumes.create,
        kind=Kind.WRITE,
        about="spec",
        check=volume_answers.check_created_volume,
    ),
    Method("volumes", Volumes.delete, kind=Kind.WRITE, check=answers.check_nothing),
    Method(
        "volumes",
        Volumes.attach,
        kind=Kind.WRITE,
        about=("volume", "instance"),
        check=volume_answers.check_attached_volume,
    ),
    Method("volumes", Volumes.detach, kind=Kind.WRITE, check=answers.check_nothing),
    Method(
        "volumes",
        Volumes.resize,
        kind=Kind.WRITE,
        about=("volume", "size_gib"),
        check=volume_answers.check_resized_volume,
    ),
    Method(
        "volumes",
        Volumes.list_snapshots,
        about=("cluster", "ids"),
        check=volume_answers.check_snapshots,
    ),
    Method(
        "volumes",
        Volumes.create_snapshot,
        kind=Kind.WRITE,
        about="spec",
        check=volume_answers.check_created_snapshot,
    ),
    Method("volumes", Volumes.delete_snapshot, kind=Kind.WRITE, check=answers.check_nothing),
    Method("volumes", Volumes.limits, check=volume_answers.check_limits),
    Method("volumes", Volumes.capacity, check=volume_answers.check_capacity),
    Method("clusters", Clusters.list_clusters, check=answers.check_texts),
    Method("clusters", Clusters.master, check=answers.check_text),
    Method(
        "ssh_keys",
        SshKeys.list_keys,
        about="nodes",
        check=answers.check_keys,
        has_outcomes=True,
    ),
    Method(
        "ssh_keys",
        SshKeys.add,
        kind=Kind.WRITE,
        about="nodes",
        check=answers.check_node_errors,
        has_outcomes=True,
    ),
    Method(
        "ssh_keys",
        SshKeys.remove,
        kind=Kind.WRITE,
        about="nodes",
        check=answers.check_node_errors,
        has_outcomes=True,
    ),
    Method("zones", Zones.current, check=answers.check_zone),
)


def rebuilt(
    cloud: Cloud,
    make: Callable[[Method, AnyFunction], AnyFunction],
    methods: Sequence[Method] = METHODS,
) -> Cloud:
    """Returns the cloud with every method replaced by what `make` returns for it.

    `make` is called with the row of the table and the cloud's own method. A capability that the
    cloud does not have stays None.
    """
    functions: dict[str, dict[str, AnyFunction]] = {}
    for method in methods:
        capability = getattr(cloud, method.capability)
        if capability is not None:
            made = make(method, getattr(capability, method.attribute))
            functions.setdefault(method.capability, {})[method.attribute] = made
    rebuilt_capabilities: dict[str, Any] = {
        name: SimpleNamespace(**made) for name, made in functions.items()
    }
    return replace(cloud, **rebuilt_capabilities)
