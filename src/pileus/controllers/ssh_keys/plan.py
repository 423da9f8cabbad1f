"""Which keys to add and to withdraw, on which nodes. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pileus.cloud.balancer import Effect
from pileus.cloud.model import NodeKeys, NodeName, SshKey
from pileus.controllers.ssh_keys.authorized_keys import Wanted

SECOND_LOOK = 10.0
"""Seconds for which a key must have been unwanted, at each look, before it is withdrawn."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call to the cloud: the same keys, on all nodes that need them added or withdrawn."""

    effect: Effect
    keys: tuple[SshKey, ...]
    nodes: tuple[NodeName, ...]


def additions(wanted: Wanted, seen: Mapping[NodeName, NodeKeys]) -> tuple[Step, ...]:
    missing = {name: wanted.keys - keys.ours - keys.others for name, keys in seen.items()}
    return _steps(Effect.CREATE, missing)


def withdrawals(wanted: Wanted, seen: Mapping[NodeName, NodeKeys]) -> tuple[Step, ...]:
    """Only keys that were added for this cluster, and only if all that is wanted is known."""
    if not wanted.is_whole:
        return ()
    return _steps(Effect.DELETE, {name: keys.ours - wanted.keys for name, keys in seen.items()})


def unwanted_since(
    steps: Iterable[Step], before: Mapping[SshKey, float], now: float
) -> dict[SshKey, float]:
    """Since when each key of the withdrawals has been unwanted without a break."""
    return {key: before.get(key, now) for step in steps for key in step.keys}


def confirmed(steps: Iterable[Step], since: Mapping[SshKey, float], now: float) -> tuple[Step, ...]:
    """The withdrawals of keys that have been unwanted for long enough."""
    due = {key for key, at in since.items() if now >= at + SECOND_LOOK}
    return tuple(
        replace(step, keys=tuple(key for key in step.keys if key in due))
        for step in steps
        if due.intersection(step.keys)
    )


def _steps(effect: Effect, by_node: Mapping[NodeName, frozenset[SshKey]]) -> tuple[Step, ...]:
    """Nodes that need the same share a step."""
    nodes: dict[frozenset[SshKey], list[NodeName]] = defaultdict(list)
    for name, keys in sorted(by_node.items()):
        if keys:
            nodes[keys].append(name)
    return tuple(Step(effect, tuple(sorted(keys)), tuple(names)) for keys, names in nodes.items())
