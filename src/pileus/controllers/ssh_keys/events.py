"""Events, metrics and logs about SSH keys. They never contain a key, only its fingerprint.

Up to 10 nodes get an event each; a change on more nodes is one event on the source.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from pileus.cloud.errors import CloudError
from pileus.cloud.model import NodeName, SshKey
from pileus.controllers.ssh_keys.plan import AddKeys, WithdrawKeys
from pileus.controllers.ssh_keys.settings import Location
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, ObjectReference
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.nodes import about_node
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

FEW = 10
"""The number of nodes that get an event each for what one pass did or failed to do."""
ADDED, WITHDRAWN = "SshKeysAdded", "SshKeysWithdrawn"
UNREADABLE, FAILED = "SshKeysUnreadable", "SshKeysFailed"
CANNOT_WITHDRAW = "SshKeysNotWithdrawn"


def shown(keys: Iterable[SshKey]) -> str:
    """Returns users and fingerprints."""
    return ", ".join(f"{key.user} {key.fingerprint}" for key in sorted(keys))


@dataclass
class KeyEvents:
    """Records what passes did. Repeats a warning at most once an hour."""

    location: Location
    notices: ObjectEvents
    metrics: Metrics
    _problems: tuple[str, ...] = field(default=(), init=False)

    def source_read(self, keys: int, problems: tuple[str, ...]) -> None:
        """Reports new problems of the source at once, and lasting ones once an hour."""
        self.metrics.ssh_keys_wanted.set(keys)
        self.metrics.ssh_keys_problems.set(len(problems))
        if problems != self._problems:
            self._problems = problems
            self.notices.forget(self.location.about, UNREADABLE)
            for problem in problems:
                log.warning("Cannot use SSH keys", source=str(self.location), problem=problem)
        if problems:
            text = f"No key is withdrawn until this is fixed: {'; '.join(problems)}"
            self._warn(UNREADABLE, text)

    def changed(self, step: AddKeys | WithdrawKeys, nodes: Mapping[NodeName, Node]) -> None:
        """Reports the keys that one call added or withdrew on these nodes."""
        adds = isinstance(step, AddKeys)
        reason, word = (ADDED, "added") if adds else (WITHDRAWN, "withdrawn")
        keys = f"SSH keys {word}: {shown(step.keys)}"
        log.info("Changed SSH keys", change=word, keys=shown(step.keys), nodes=len(nodes))
        self.metrics.ssh_keys_changes.labels(word).inc(len(step.keys) * len(nodes))
        if len(nodes) > FEW:
            self._announce(reason, f"{keys} on {len(nodes)} nodes")
            return
        for node in nodes.values():
            self.notices.announce(about_node(node), reason, shortened(keys))

    def failed(self, errors: Mapping[NodeName, CloudError], nodes: Mapping[NodeName, Node]) -> None:
        for name, error in errors.items():
            log.warning("Cannot update SSH keys of node", node=name, err=error)
        for name in sorted(errors)[:FEW]:
            text = shortened(f"Cannot update SSH keys: {errors[name]}")
            self.notices.warn(about_node(nodes[name]), FAILED, text)
        if len(errors) > FEW:
            some = ", ".join(sorted(errors)[:FEW])
            self._warn(FAILED, f"Cannot update SSH keys on {len(errors)} nodes: {some}, …")
        else:
            self.notices.forget(self.location.about, FAILED)

    def recovered(self, nodes: Iterable[Node]) -> None:
        """These nodes have the desired keys: their next failure is reported at once."""
        for node in nodes:
            self.notices.forget(about_node(node), FAILED)

    def cannot_withdraw(self, keys: Sequence[SshKey], why: str) -> None:
        self._warn(CANNOT_WITHDRAW, f"{why}. Remove these keys manually: {shown(keys)}")

    def count(self, states: Mapping[str, int]) -> None:
        for state, count in states.items():
            self.metrics.ssh_keys_nodes.labels(state).set(count)

    def keep(self, nodes: Iterable[Node]) -> None:
        """Forgets the warnings of all nodes but these."""
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
