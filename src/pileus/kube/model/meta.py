"""What every Kubernetes object has, and how its kind is reached over HTTP.

Every field has a default and tolerates `null`: one odd object must never fail a whole list.
"""

from collections.abc import Iterable
from datetime import datetime
from sys import intern
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec.structs import force_setattr

from pileus.dataclass import dataclass

Labels = dict[str, str]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Integers as the API server stores them; arithmetic with larger ones could overflow."""
Time = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone; one without could not be compared to others."""


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base of everything that crosses the wire."""


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    observed_generation: Int64 = 0


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class KubeObject(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()

    def share_strings(self, before: "KubeObject | None" = None) -> None:
        """Let objects in a cache share equal texts. A decoder makes one for each object.

        What the version before has as well is taken from it: most updates change little, and one
        comparison takes less time than sharing every text.
        """
        labels = self.metadata.labels
        if labels and not take(self.metadata, "labels", before and before.metadata):
            shared = [(intern(name), intern(value)) for name, value in labels.items()]
            labels.clear()
            labels.update(shared)


def take(value: msgspec.Struct, field: str, before: msgspec.Struct | None) -> bool:
    """Take a field from the value before, if it is equal. Returns whether it is."""
    if before is None:
        return False
    former = getattr(before, field)
    if getattr(value, field) != former:
        return False
    force_setattr(value, field, former)
    return True


def share(values: Iterable[msgspec.Struct] | None, *fields: str) -> None:
    """Let these fields share equal texts."""
    for value in values or ():
        for field in fields:
            text = getattr(value, field)
            if text is not None:
                force_setattr(value, field, intern(text))


T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind and where the API server serves it."""

    type: type[T]
    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    has_micro_times: bool = False
    """Whether its times are micro times, which the API server takes with six digits only."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource.

        Namespace "" means all namespaces (for a list or watch of a namespaced kind).
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = f"/{name}" if name else ""
        sub = f"/{subresource}" if subresource else ""
        return f"{root}{scope}/{self.plural}{tail}{sub}"
