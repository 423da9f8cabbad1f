"""Tell users about their nodes by events, without telling the same thing again and again."""

import asyncio
from collections.abc import Iterable

from pileus.controllers.node.facts import Facts
from pileus.controllers.node.trouble import shortened
from pileus.kube.model.core_v1 import Node, ObjectReference
from pileus.runtime.events import Recorder

REPEAT_AFTER = 3600.0
"""Seconds after which a warning that still holds is repeated (events live for an hour)."""


class Notices:
    """The events of this controller. Warnings are remembered per node and reason."""

    def __init__(self, events: Recorder) -> None:
        self._events = events
        self._warned: dict[str, dict[str, float]] = {}

    def announce(self, node: Node, reason: str, message: str) -> None:
        self._events.record(_about(node), "Normal", reason, message)

    def warn(self, node: Node, reason: str, message: str) -> None:
        """Record a warning, unless the node was given one for this reason not long ago."""
        warned = self._warned.setdefault(_key(node), {})
        now = asyncio.get_running_loop().time()
        if now - warned.get(reason, -REPEAT_AFTER) < REPEAT_AFTER:
            return
        warned[reason] = now
        self._events.record(_about(node), "Warning", reason, message)

    def complain(self, node: Node, facts: Facts) -> None:
        """Warn about what the cloud says and Kubernetes does not accept, if there is anything."""
        self._complain(node, "CloudAddressSkipped", facts.bad_addresses)
        self._complain(node, "CloudLabelSkipped", facts.bad_labels)

    def _complain(self, node: Node, reason: str, complaints: tuple[str, ...]) -> None:
        if complaints:
            self.warn(node, reason, shortened(f"Left out: {'; '.join(complaints)}"))

    def keep(self, nodes: Iterable[Node]) -> None:
        """Forget what was said of all nodes but these."""
        kept = {_key(node) for node in nodes}
        self._warned = {key: told for key, told in self._warned.items() if key in kept}


def _key(node: Node) -> str:
    return node.metadata.uid or node.metadata.name


def _about(node: Node) -> ObjectReference:
    return ObjectReference(
        api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid
    )
