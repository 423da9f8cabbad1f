"""How many requests a process may make in a minute: as many as the laws of back-off allow.

A part of the manager passes over each of its things, at the pace of its law, and once more over
all of them together; so many passes, times what one of them asks for.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import ceil

from pileus.controllers.ssh_keys import controller as ssh_keys
from pileus.controllers.ssh_keys.source import LOOK_EVERY
from pileus.kube.informer import FIRST_DELAY, FRUITLESS, LONGEST_DELAY
from pileus.runtime.events import RETRY
from pileus.runtime.lease import Durations
from pileus_lab.simulation.invariants.pace import LAWS, OTHERS, Law
from pileus_lab.simulation.stage.steps import Channel

Things = Mapping[str, Collection[str]]
"""All that ever were, by kind."""
MINUTE = 60.0
NODES, SERVICES, RANGES = "nodes", "services", "ranges"
LEASES = 2
"""The main one, and that of leader migration."""
FOR_A_LEASE = 4
"""It is read and written every retry period, and once more of each after a conflict."""
WATCHED = 3
"""Kinds: nodes, Services, and the ConfigMap of SSH keys."""
EACH_SECOND = Law(1.0, 1.0)
"""Whoever has come to lead asks so whether the API server is well."""
TOLD = 2
"""Events of one pass over a thing, at most: that it is being done, and how it ended."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one part of the manager."""

    law: Law
    over: tuple[str, ...] = (NODES, SERVICES, RANGES)
    """What its passes are over."""
    calls: int = 2
    """Of each kind in a pass over one thing, at most: what fails, and the word that it does; or a
    look at the cloud and, after a change, one more. What goes well is not done again."""

    def size(self, things: Things) -> int:
        """How many it passes over, with all of them together as one."""
        return 1 + sum(len(things.get(kind, ())) for kind in self.over)


_KEYS = Rate(Law(ssh_keys.RETRIES.first, LOOK_EVERY), (NODES,))
RATES: Mapping[str, Rate] = {
    # A node is new, or its machine is gone or stopped: two. Its range makes the third.
    "node-controller": Rate(LAWS["node-controller"], (NODES,), 3),
    "route-controller": Rate(LAWS["route-controller"], (NODES,), 1),
    "service-controller": Rate(LAWS["service-controller"], (SERVICES,)),
    "ssh-key-controller": _KEYS,
    "cloud balancers": Rate(LAWS["cloud balancers"], (SERVICES,)),
    "cloud instances": Rate(OTHERS, (NODES,)),
    "cloud routes": Rate(LAWS["cloud routes"], (RANGES,), 1),
    "cloud keys": _KEYS,
    "shared-informers": Rate(Law(FIRST_DELAY, LONGEST_DELAY), (NODES, SERVICES), 1),
    "healthz": Rate(EACH_SECOND, (), 1),
}
ANY = Rate(OTHERS)
"""Of parts that only some clouds have."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Requests that one observation of the cloud takes, as its provider declares."""

    check: int = 1
    """Of one load balancer."""
    lists: int = 1
    """Of all machines, load balancers or routes."""

    def of(self, agent: str) -> int:
        return self.check if agent == "cloud balancers" else self.lists


def most_calls(
    agent: str, channel: Channel, things: Things, election: Durations, costs: Costs
) -> int:
    """How many there may be of this kind in a minute, if nobody asks for more."""
    if channel is Channel.LEASE:
        return ceil(LEASES * FOR_A_LEASE * MINUTE / election.retry)
    if channel is Channel.WATCH:
        return ceil(WATCHED * MINUTE / (FRUITLESS + FIRST_DELAY / 2))
    rate = RATES.get(agent, ANY)
    size = rate.size(things)
    passes = size * rate.law.passes(MINUTE)
    if channel is Channel.EVENT:
        # Written when it is told; and what fails once sooner, then in turn.
        return ceil(TOLD * (passes + size * (1 + MINUTE / RETRY)))
    if channel is Channel.CLOUD_READ:
        return ceil(max(rate.calls, costs.of(agent)) * passes)
    return ceil(rate.calls * passes)
