"""Settings of the SSH key controller, and the source of keys that they name.

A source is `configmap:NAMESPACE/NAME`, `secret:NAMESPACE/NAME` or `file:PATH`.
"""

import re

from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import ObjectReference
from pileus.settings.declare import converted
from pileus.settings.go_quote import quote
from pileus.settings.kinds import STRING
from pileus.suggest import did_you_mean

KINDS = {"configmap": "ConfigMap", "secret": "Secret", "file": "File"}
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class BadLocation(ValueError):
    """The text does not name a source of keys."""


@dataclass(frozen=True, slots=True)
class Location:
    kind: str
    """`ConfigMap`, `Secret` or `File`."""
    namespace: str
    name: str
    """The name of the object; the path of a file."""

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"

    @property
    def about(self) -> ObjectReference:
        """The reference for events and plans."""
        version = "" if self.kind == KINDS["file"] else "v1"
        return ObjectReference(
            api_version=version, kind=self.kind, namespace=self.namespace, name=self.name
        )


def located(text: str) -> Location:
    """Parses the value of `--ssh-keys-from`. Raises `BadLocation`."""
    word, _, rest = text.partition(":")
    if word not in KINDS:
        raise BadLocation(
            f"{quote(text)} is not a source: use configmap:NAMESPACE/NAME, "
            f"secret:NAMESPACE/NAME or file:PATH{did_you_mean(word, KINDS)}"
        )
    if word == "file":
        if not rest:
            raise BadLocation(f"{quote(text)} has no path")
        return Location(KINDS[word], "", rest)
    namespace, _, name = rest.partition("/")
    if not NAME.fullmatch(namespace) or not NAME.fullmatch(name):
        raise BadLocation(f"{quote(text)} must be {word}:NAMESPACE/NAME")
    return Location(KINDS[word], namespace, name)


def _read(name: str, text: str) -> Location | None:
    try:
        return located(text) if text else None
    except BadLocation as error:
        raise ValueError(f"--{name}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKeysSettings:
    """Where the SSH keys of all instances come from."""

    source: Location | None = converted(
        _read,
        "ssh-keys-from",
        STRING,
        "",
        "Source of the instances' SSH keys: configmap:NAMESPACE/NAME, secret:NAMESPACE/NAME "
        "or file:PATH; empty: not managed.",
        section="Pileus: SSH keys",
    )
    """None: SSH keys are not managed."""
