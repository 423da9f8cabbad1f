"""Which cloud a node belongs to. Every controller asks here, and nowhere else.

A node of another cloud is never written to, looked up, routed to or given keys, and is a member
only of Services that ask for it. A node without a provider ID may be a machine of this cloud.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from pileus.cloud.interface import Cloud
from pileus.cloud.model import NodeRef
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import is_uninitialized, provider_id_of, reference
from pileus.telemetry.log import Log

if TYPE_CHECKING:
    from pileus.telemetry.metrics import Metrics  # not needed by help, and slow to import

log = Log(__name__)


class Ownership(Enum):
    OURS = auto()
    UNPROVEN = auto()
    """Possibly a machine of this cloud, such as a node that was never initialized."""
    FOREIGN = auto()
    """A machine of another cloud."""


Whose = Callable[[Node], Ownership]


def whose_by(cloud: Cloud) -> Whose:
    """Returns the question for one cloud.

    The scheme of provider IDs proves nothing for a provider without instances: it never names a
    machine, so all provider IDs in its clusters are those of others.
    """
    return owner_by(cloud.name if cloud.instances is not None else "", cloud.owns)


def owner_by(scheme: str, owns: Callable[[NodeRef], bool | None] | None) -> Whose:
    """`scheme` is that of the cloud's provider IDs; empty if there is none."""

    def whose(node: Node) -> Ownership:
        return ownership(node, scheme, owns(reference(node)) if owns else None)

    return whose


def ownership(node: Node, scheme: str, owns: bool | None) -> Ownership:  # noqa: FBT001 -- an answer
    """Decides by `owns`, the provider's own answer, if it has one, and by the scheme otherwise."""
    if owns is not None:
        return Ownership.OURS if owns else Ownership.FOREIGN
    found, separator, _ = (text := provider_id_of(node)).partition("://")
    if separator and scheme:
        return Ownership.OURS if found == scheme else Ownership.FOREIGN
    return Ownership.OURS if text and not is_uninitialized(node) else Ownership.UNPROVEN


class IgnoredNodes:
    """A handler of node changes: logs each ignored node once, and counts them."""

    def __init__(self, whose: Whose, cloud: str, metrics: "Metrics") -> None:
        self._whose = whose
        self._cloud = cloud
        self._names: set[str] = set()
        metrics.nodes_ignored.set_function(lambda: len(self._names))

    def added(self, new: Node, /) -> None:
        name = new.metadata.name
        if self._whose(new) is not Ownership.FOREIGN:
            self._names.discard(name)
        elif name not in self._names:
            self._names.add(name)
            log.info(
                "Ignoring node of another cloud",
                node=name,
                provider_id=provider_id_of(new),
                cloud=self._cloud,
            )

    def updated(self, old: Node, new: Node, /) -> None:  # noqa: ARG002 -- as handlers are called
        self.added(new)

    def deleted(self, old: Node, /) -> None:
        self._names.discard(old.metadata.name)
