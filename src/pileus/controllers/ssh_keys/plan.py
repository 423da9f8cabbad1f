"""The steps of a pass: which SSH keys to add and to withdraw, on which nodes. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from pileus.cloud.errors import CloudError
from pileus.cloud.model import NodeKeys, NodeName, SshKey
from pileus.controllers.ssh_keys.authorized_keys import DesiredKeys
from pileus.dataclass import dataclass

SECOND_CHECK = 10.0
"""Seconds for which a key must have been unwanted, in each pass, before it is withdrawn."""


def _no_failures() -> Mapping[NodeName, CloudError]:
    return {}


def _no_times() -> Mapping[SshKey, float]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The input of a plan."""

    desired: DesiredKeys
    keys: Mapping[NodeName, NodeKeys]
    """The keys of nodes. Nodes about which nothing is known are missing."""
    failures: Mapping[NodeName, CloudError] = field(default_factory=_no_failures)
    """Why nothing is known about a node."""
    unlisted: str = ""
    """Why the cloud cannot list keys; then `keys` are those that this process has added."""
    unwanted_since: Mapping[SshKey, float] = field(default_factory=_no_times)
    """When the first pass found a key unwanted, without a pass in between that wanted it."""
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class AddKeys:
    """One call to the cloud: add the keys on all nodes that lack them."""

    keys: tuple[SshKey, ...]
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class WithdrawKeys:
    """One call to the cloud: remove the keys from all nodes that have them for this cluster."""

    keys: tuple[SshKey, ...]
    nodes: tuple[NodeName, ...]
    wait: float = 0.0
    """Seconds until a second check can confirm that the keys are unwanted; 0: it has."""


@dataclass(frozen=True, slots=True)
class KeepKeys:
    """Warn that the cloud cannot remove keys that are not desired any more."""

    keys: tuple[SshKey, ...]
    why: str


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """Report that the keys of a node are unknown."""

    node: NodeName
    error: CloudError


Step = AddKeys | WithdrawKeys | KeepKeys | ReportFailure
Steps = tuple[Step, ...]


def plan(seen: Observation) -> Steps:
    """Returns the steps of a pass. Empty: all nodes have the desired keys."""
    failures = (ReportFailure(name, error) for name, error in seen.failures.items())
    removals = _kept(seen) if seen.unlisted else _withdrawals(seen)
    return (*_additions(seen), *removals, *failures)


def unwanted_since(steps: Iterable[Step], seen: Observation) -> Mapping[SshKey, float]:
    """Returns since when each key that the steps withdraw has been unwanted, without a break."""
    keys = (key for step in steps if isinstance(step, WithdrawKeys) for key in step.keys)
    return {key: seen.unwanted_since.get(key, seen.now) for key in keys}


def _additions(seen: Observation) -> Iterator[AddKeys]:
    desired = seen.desired.keys
    missing = {name: desired - keys.ours - keys.others for name, keys in seen.keys.items()}
    for keys, nodes in _grouped(missing):
        yield AddKeys(tuple(sorted(keys)), nodes)


def _withdrawals(seen: Observation) -> Iterator[WithdrawKeys]:
    """Only keys that were added for this cluster, and only if all desired keys are known."""
    if not seen.desired.is_complete:
        return
    unwanted = {name: keys.ours - seen.desired.keys for name, keys in seen.keys.items()}
    for keys, nodes in _grouped(unwanted):
        waits = {key: _wait(seen, key) for key in sorted(keys)}
        if due := tuple(key for key, wait in waits.items() if not wait):
            yield WithdrawKeys(due, nodes)
        if later := tuple(key for key, wait in waits.items() if wait):
            yield WithdrawKeys(later, nodes, max(waits.values()))


def _wait(seen: Observation, key: SshKey) -> float:
    return max(seen.unwanted_since.get(key, seen.now) + SECOND_CHECK - seen.now, 0.0)


def _kept(seen: Observation) -> Iterator[KeepKeys]:
    added = {key for keys in seen.keys.values() for key in keys.others}
    left = added - seen.desired.keys
    if left and seen.desired.is_complete:
        yield KeepKeys(tuple(sorted(left)), seen.unlisted)


def _grouped(
    by_node: Mapping[NodeName, frozenset[SshKey]],
) -> Iterator[tuple[frozenset[SshKey], tuple[NodeName, ...]]]:
    """Yields keys with the nodes that need exactly these: they share a call."""
    nodes: dict[frozenset[SshKey], list[NodeName]] = defaultdict(list)
    for name, keys in sorted(by_node.items()):
        if keys:
            nodes[keys].append(name)
    for keys, names in nodes.items():
        yield keys, tuple(names)
