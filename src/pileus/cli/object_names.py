"""The objects that a command line can name: kinds, their short names, and how they are written."""

from collections.abc import Mapping, Sequence
from typing import Any

from pileus.cli.arguments import UsageError
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SERVICES,
)
from pileus.kube.model.meta import Resource
from pileus.kube.model.storage_v1 import VOLUME_ATTACHMENTS
from pileus.objects.preview import EVERYTHING, Scope
from pileus.suggest import closest

RESOURCES: Mapping[str, Resource[Any]] = {
    each.kind: each
    for each in (
        NODES,
        SERVICES,
        PERSISTENT_VOLUME_CLAIMS,
        PERSISTENT_VOLUMES,
        VOLUME_ATTACHMENTS,
    )
}
"""The kinds that can be named."""
WORDS: Mapping[str, str] = {
    "node": "Node",
    "service": "Service",
    "pvc": "PersistentVolumeClaim",
    "pv": "PersistentVolume",
    "volumeattachment": "VolumeAttachment",
}
"""The word of each kind that help and completion show."""
SYNONYMS: Mapping[str, str] = {
    **WORDS,
    **{kind.casefold(): kind for kind in RESOURCES},
    **{each.plural: kind for kind, each in RESOURCES.items()},
    "no": "Node",
    "svc": "Service",
    "claim": "PersistentVolumeClaim",
    "attachment": "VolumeAttachment",
}
OBJECT = "KIND [NAMESPACE/]NAME"


@dataclass(frozen=True, slots=True)
class Named:
    """The object that a command line names; without a kind, all objects."""

    kind: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def is_namespaced(self) -> bool:
        return bool(self.kind) and RESOURCES[self.kind].namespaced

    def scope(self, namespace: str) -> Scope:
        """Returns the scope. `namespace` is used for an object that is named without one."""
        if not self.kind:
            return EVERYTHING
        if not self.is_namespaced:
            return Scope(self.kind, "", self.name)
        return Scope(self.kind, self.namespace or namespace, self.name)


def parsed_object(words: Sequence[str]) -> Named:
    """Returns what `node NAME` or `service [NAMESPACE/]NAME` names. Raises UsageError."""
    if not words:
        return Named()
    parts = [part for word in words for part in word.split("/")]
    kind = SYNONYMS.get(parts[0].casefold())
    if kind is None:
        meant = closest(parts[0], tuple(SYNONYMS))
        hint = f"did you mean {meant}?" if meant else ""
        raise UsageError(f'unknown kind "{parts[0]}" (known: {", ".join(WORDS)})', hint)
    match parts[1:]:
        case [name] if name:
            return Named(kind, "", name)
        case [namespace, name] if namespace and name and RESOURCES[kind].namespaced:
            return Named(kind, namespace, name)
        case _:
            form = "[NAMESPACE/]NAME" if RESOURCES[kind].namespaced else "NAME"
            given = " ".join(words)
            raise UsageError(f'expected {_word(kind)} {form}, but got "{given}"')


def within_namespace(found: Named, namespace: str) -> Named:
    """Returns the object with the namespace of `--namespace`. Raises UsageError."""
    if namespace and not found.is_namespaced:
        raise UsageError(
            f"--namespace={namespace} needs an object in a namespace: service NAME, or pvc NAME"
        )
    if namespace and found.namespace not in {"", namespace}:
        raise UsageError(
            f"--namespace={namespace} contradicts "
            f"{_word(found.kind)} {found.namespace}/{found.name}"
        )
    return Named(found.kind, found.namespace or namespace, found.name)


def _word(kind: str) -> str:
    return next(word for word, each in WORDS.items() if each == kind)
