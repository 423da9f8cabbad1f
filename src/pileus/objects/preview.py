"""The lines of a plan: what a controller would do now."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Protocol

from pileus.cloud.balancer import Effect
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import ObjectReference
from pileus.settings.go_quote import quote


class Place(StrEnum):
    CLOUD = "cloud"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One change that would be made now, or (with `waits_for`) later. Contains no secrets."""

    about: ObjectReference
    """The object of the cluster for which the change would be made.

    Has no name if the object was deleted and only its UID is known."""
    place: Place
    effect: Effect
    summary: str
    """One line, such as `balancer shop: listener 80/TCP`."""
    details: tuple[str, ...] = ()
    """Fields before and after, one per line: `spec.providerID: "" → "local://web-1"`.

    For changes in the cluster, every written field is named with its path and its new value."""
    waits_for: str = ""
    """What has to happen first; empty if the change would be made at once."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an object is blocked, or why its plan is unknown."""

    about: ObjectReference
    reason: str
    message: str
    is_aftermath: bool = False
    """Whether it only follows from another problem. Skipped if another line is about the object."""


class State(Protocol):
    """Status, reason and message of a condition."""

    @property
    def status(self) -> str: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def message(self) -> str | None: ...


def condition_detail(kind: str, before: State | None, after: State | None) -> str:
    """Returns the detail of a line that changes a condition: `status.conditions[…]: … → …`."""
    if before and after and _state(before) == _state(after) and before.message != after.message:
        change = f"{quote(before.message or '')} → {quote(after.message or '')}"
        return f"status.conditions[{kind}].message: {change}"
    return f"status.conditions[{kind}]: {_state(before)} → {_state(after)}"


def _state(condition: State | None) -> str:
    return f"{quote(condition.status)} ({condition.reason or ''})" if condition else "none"


def title(about: ObjectReference) -> str:
    """Returns the title of an object: `Node web-1`, `Service shop/web`."""
    if not about.name:
        return f"{about.kind} with UID {about.uid} (deleted)"
    name = f"{about.namespace}/{about.name}" if about.namespace else about.name
    return f"{about.kind} {name}"


@dataclass(frozen=True, slots=True)
class Scope:
    """The objects of a plan; an empty scope means all objects."""

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
"""Returns what a controller would do now, from the same decisions as its passes. Reads only."""
