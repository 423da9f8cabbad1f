"""What a controller would do, told before it is done: the lines of a plan."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pileus.cloud.balancer import Effect
from pileus.kube.model.core_v1 import ObjectReference
from pileus.settings.go_quote import quote


class Place(StrEnum):
    CLOUD = "cloud"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One change that would be made now, or (with `waits_for`) later. Printable, no secrets."""

    about: ObjectReference
    """The object of the cluster on whose behalf it would be made.

    Without a name, an object that was deleted and is known by its UID only."""
    place: Place
    effect: Effect
    summary: str
    """One line, such as `balancer shop: listener 80/TCP`."""
    details: tuple[str, ...] = ()
    """Fields before and after, one a line: `spec.providerID: "" → "local://web-1"`.

    In the cluster every field that would be written is named, by its path and its new value."""
    waits_for: str = ""
    """What has to happen first; empty: it would be made at once."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why nothing can be said, or done, for an object."""

    about: ObjectReference
    reason: str
    message: str
    is_aftermath: bool = False
    """Whether it only follows from what is wrong; who else tells of the object says it better."""


class State(Protocol):
    """What a condition says."""

    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str | None: ...


def condition_detail(kind: str, before: State | None, after: State | None) -> str:
    """Returns the detail of a line that changes a condition: `status.conditions[…]: … → …`."""
    return f"status.conditions[{kind}]: {_state(before)} → {_state(after)}"


def _state(condition: State | None) -> str:
    return f"{quote(condition.status)} ({condition.reason or ''})" if condition else "none"


def title(about: ObjectReference) -> str:
    """Returns an object as people call it: `Node web-1`, `Service shop/web`."""
    if not about.name:
        return f"{about.kind} with UID {about.uid} (deleted)"
    name = f"{about.namespace}/{about.name}" if about.namespace else about.name
    return f"{about.kind} {name}"


@dataclass(frozen=True, slots=True)
class Scope:
    """Which objects a plan is about; the empty one means all."""

    kind: str = ""
    namespace: str = ""
    name: str = ""

    def has(self, about: ObjectReference) -> bool:
        return not self.kind or (self.kind, self.namespace, self.name) == (
            about.kind,
            about.namespace,
            about.name,
        )


EVERYTHING = Scope()

Preview = Callable[[Scope], Awaitable[Sequence[Planned | Trouble]]]
"""A controller's own plan: made from the same decisions as its passes, reading only."""
