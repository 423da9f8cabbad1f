"""Tells operators how far the keys have come: events, metrics and the log. Never a key itself.

Single nodes get events while they are few; a change on all of a large cluster is one event on
the source.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError
from pileus.cloud.model import NodeName, SshKey
from pileus.controllers.ssh_keys.location import Location
from pileus.controllers.ssh_keys.plan import Step
from pileus.kube.model.core_v1 import Node, ObjectReference
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.nodes import about_node
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

FEW = 10
"""Nodes that get events of their own for what one pass did or failed to do."""
ADDED, WITHDRAWN = "SshKeysAdded", "SshKeysWithdrawn"
UNREADABLE, FAILED = "SshKeysUnreadable", "SshKeysFailed"
CANNOT_WITHDRAW = "SshKeysNotWithdrawn"
DONE: Mapping[Effect, tuple[str, str]] = {
    Effect.CREATE: (ADDED, "added"),
    Effect.DELETE: (WITHDRAWN, "withdrawn"),
}


def shown(keys: Iterable[SshKey]) -> str:
    """Keys as all may see them: whose, and their fingerprints."""
    return ", ".join(f"{key.user} {key.fingerprint}" for key in sorted(keys))


@dataclass
class Report:
    """What was told so far, so that nothing is told again and again."""

    location: Location
    notices: ObjectEvents
    metrics: Metrics
    _problems: tuple[str, ...] = field(default=(), init=False)

    def wanted(self, keys: int, problems: tuple[str, ...]) -> None:
        """What the source says; news are told at once, what stays wrong once an hour."""
        self.metrics.ssh_keys_wanted.set(keys)
        self.metrics.ssh_keys_problems.set(len(problems))
        if problems != self._problems:
            self._problems = problems
            self.notices.forget(self.location.about, UNREADABLE)
            for problem in problems:
                log.warning("Cannot use SSH keys", source=str(self.location), problem=problem)
        if problems:
            text = f"No key is removed until this is fixed: {'; '.join(problems)}"
            self._warn(UNREADABLE, text)

    def did(self, step: Step, nodes: Mapping[NodeName, Node]) -> None:
        """What one call achieved, on the nodes that are given."""
        reason, word = DONE[step.effect]
        keys = f"SSH keys {word}: {shown(step.keys)}"
        log.info("SSH keys changed", change=word, keys=shown(step.keys), nodes=len(nodes))
        self.metrics.ssh_keys_changes.labels(word).inc(len(step.keys) * len(nodes))
        if len(nodes) > FEW:
            self._announce(reason, f"{keys} on {len(nodes)} nodes")
            return
        for node in nodes.values():
            self.notices.announce(about_node(node), reason, shortened(keys))

    def failed(self, errors: Mapping[NodeName, CloudError], nodes: Mapping[NodeName, Node]) -> None:
        for name, error in errors.items():
            log.warning("SSH keys of node failed", node=name, err=error)
        for name in sorted(errors)[:FEW]:
            text = shortened(f"SSH keys could not be brought up to date: {errors[name]}")
            self.notices.warn(about_node(nodes[name]), FAILED, text)
        if len(errors) > FEW:
            some = ", ".join(sorted(errors)[:FEW])
            self._warn(FAILED, f"SSH keys failed on {len(errors)} nodes: {some}, …")
        else:
            self.notices.forget(self.location.about, FAILED)

    def well(self, nodes: Iterable[Node]) -> None:
        """These have what they should: their next failure is news."""
        for node in nodes:
            self.notices.forget(about_node(node), FAILED)

    def cannot_withdraw(self, keys: Sequence[SshKey], why: str) -> None:
        self._warn(CANNOT_WITHDRAW, f"{why}. Withdrawn, but still accepted: {shown(keys)}")

    def counted(self, states: Mapping[str, int]) -> None:
        for state, count in states.items():
            self.metrics.ssh_keys_nodes.labels(state).set(count)

    def keep(self, nodes: Iterable[Node]) -> None:
        """Forget what was told of nodes that are gone."""
        self.notices.keep([*(about_node(node) for node in nodes), self.location.about])

    def _about(self) -> ObjectReference | None:
        return None if self.location.kind == "File" else self.location.about

    def _announce(self, reason: str, text: str) -> None:
        if about := self._about():
            self.notices.announce(about, reason, shortened(text))

    def _warn(self, reason: str, text: str) -> None:
        if about := self._about():
            self.notices.warn(about, reason, shortened(text))
        else:
            log.warning(text, reason=reason)
