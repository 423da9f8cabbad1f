"""Changes that name only what changes, so that fields which we do not know are never lost."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pileus.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class MergePatch:
    """JSON merge patch: maps are merged, null removes a key, a list replaces the whole list."""

    content_type: ClassVar[str] = "application/merge-patch+json"
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StrategicPatch:
    """Strategic merge patch: as JSON merge, but lists of built-in kinds are merged by their key."""

    content_type: ClassVar[str] = "application/strategic-merge-patch+json"
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """JSON patch: operations in order, all or none; `test` guards against a race."""

    content_type: ClassVar[str] = "application/json-patch+json"
    body: Sequence[Mapping[str, object]]


Patch = MergePatch | StrategicPatch | JsonPatch
