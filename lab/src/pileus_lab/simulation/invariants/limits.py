"""How often a manager may send the same request, and how many requests it may send per minute."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil, inf, log2

from pileus.controllers.ipam import reconciler as ipam
from pileus.controllers.node import controller as node
from pileus.controllers.route import controller as route
from pileus.controllers.service.notes import WAITS
from pileus.controllers.ssh_keys import controller as ssh_keys
from pileus.controllers.ssh_keys.source import FILE_PERIOD
from pileus.controllers.volume import controller as volume
from pileus.controllers.volume.reconciler import PAUSE
from pileus.kube.informer import FIRST_DELAY, FRUITLESS, LONGEST_DELAY
from pileus.objects.cluster_nodes import TRIES
from pileus.runtime.backoff import SERVICE_RETRIES
from pileus.runtime.events import RETRY
from pileus.runtime.settings import Durations
from pileus_lab.simulation.environment.cluster import OF_VOLUMES
from pileus_lab.simulation.environment.steps import Answer, Call, Channel
from pileus_lab.simulation.setup import MONITOR_PERIOD

AT_ONCE = TRIES
"""Attempts of one pass that finds an object changed meanwhile (409)."""
CONFLICT = "409"
REFUSED = "Conflict"
"""The same, of the cloud."""
TICK = 0.001
SPARE = 4
"""Passes for other reasons than the failure, such as events in flight."""


@dataclass(frozen=True, slots=True)
class Law:
    """How soon a failed call is retried."""

    first: float
    """Seconds after the first failure; then doubled."""
    least: float
    """Minimum seconds between two passes for other reasons."""

    def passes(self, elapsed: float) -> float:
        """How many calls there may be in that many seconds."""
        return SPARE + log2(1 + elapsed / self.first) + elapsed / self.least


_ROUTES = Law(route.RETRIES.first, route.WINDOW / route.BURST)  # while nodes change
LAWS: Mapping[str, Law] = {
    "service-controller": Law(SERVICE_RETRIES.first, WAITS.last),
    "cloud balancers": Law(WAITS.first, WAITS.last),  # while the cloud is at work
    "cloud routes": _ROUTES,
    "route-controller": _ROUTES,
    "node-controller": Law(node.RETRIES.first, ipam.DOUBT),
    "volume-controller": Law(volume.RETRIES.first, PAUSE),
    "cloud volumes": Law(volume.RETRIES.first, PAUSE),
}
OTHERS = Law(node.RETRIES.first, MONITOR_PERIOD)
"""For periodic checks."""


@dataclass(slots=True)
class Vain:
    """Consecutive failures of the same call."""

    since: float
    passes: int = 0
    conflicts: int = 0

    def count(self, answer: Answer) -> None:
        """A call that was asked to retry may do so; one pass may see several conflicts."""
        is_conflict = answer.trouble == CONFLICT
        if answer.patience is not None:
            return
        if is_conflict and self.conflicts % AT_ONCE:
            self.conflicts += 1
        else:
            self.conflicts = 1 if is_conflict else 0
            self.passes += 1


Key = tuple[str, str, str]
Waiting = tuple[str, str, str, bytes]


@dataclass(slots=True)
class Paces:
    """The history of calls."""

    minute: int = 0
    sent: Counter[tuple[str, str, Channel]] = field(
        default_factory=Counter[tuple[str, str, Channel]]
    )
    """By process and part of it, in this minute."""
    invited: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How often each was asked to retry later, or with a fresh view, in this minute."""
    accepted: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """How many changes of the cloud were accepted in this minute: the checks that follow each of
    them start over at short intervals."""
    vain: dict[Key, Vain] = field(default_factory=dict[Key, Vain])
    quiet_until: dict[Waiting, float] = field(default_factory=dict[Waiting, float])
    """Until when a call must not be repeated; for the cloud, no call at all."""
    told_at: dict[Waiting, float] = field(default_factory=dict[Waiting, float])
    """When that was said. What is sent at that very moment was on its way before."""
    ill: dict[str, float] = field(default_factory=dict[str, float])
    """When a process last had trouble with the API server."""

    def learn_of_call(self, call: Call) -> None:
        minute = int(call.at // 60)
        if minute != self.minute:
            self.minute = minute
            self.sent.clear()
            self.invited.clear()
            self.accepted.clear()
        self.sent[call.identity, call.agent, call.channel] += 1

    def learn_of_answer(self, answer: Answer, now: float, *, is_paused: bool = False) -> None:
        """`is_paused`: the process reads the answer only after it is resumed."""
        call = answer.call
        if answer.patience is not None:
            self.quiet_until[who_waits(call)] = now + answer.patience
            self.told_at[who_waits(call)] = inf if is_paused else now
        if answer.patience is not None or answer.trouble == CONFLICT:
            self.invited[call.identity, call.agent] += 1
        if not answer.trouble:
            self.accepted[call.identity, call.agent] += call.channel is Channel.CLOUD_WRITE
            for key in (same(call), shared(call)):
                self.vain.pop(key, None)
            return
        if not call.is_to_cloud:
            self.ill[call.identity] = now
        if call.is_work or call.is_to_cloud:
            self.vain.setdefault(same(call), Vain(call.at)).count(answer)
        if call.shared and answer.trouble == REFUSED and not answer.is_injected:
            self.vain.setdefault(shared(call), Vain(call.at)).count(answer)

    def changed(self, path: str, *, by_manager: bool) -> None:
        """An object changed: one more pass may run at once; it starts over if others changed it."""
        for key in [key for key in self.vain if path in key[2]]:
            if by_manager:
                self.vain[key].passes -= 1
            else:
                del self.vain[key]

    def is_early(self, call: Call) -> bool:
        whose = who_waits(call)
        is_known = call.at > self.told_at.get(whose, 0.0)
        return is_known and call.at < self.quiet_until.get(whose, 0.0) - TICK


def same(call: Call) -> Key:
    return call.identity, call.agent, call.what


def shared(call: Call) -> Key:
    """The key of all changes of an object that several Services or routes change."""
    return call.identity, call.agent, f"changes of {call.shared}"


def who_waits(call: Call) -> Waiting:
    """Retry-After of the API server is for the same request; of the cloud for all calls."""
    if call.is_to_cloud:
        return call.identity, "cloud", "", b""
    return call.identity, call.agent, call.what, call.content


Things = Mapping[str, Collection[str]]
"""All objects that ever existed, by kind."""
MINUTE = 60.0
NODES, SERVICES, RANGES = "nodes", "services", "ranges"
LEASES = 2
"""The main lease, and that of leader migration."""
FOR_A_LEASE = 4
"""It is read and written every retry period, and once more after a conflict."""
WATCHED = 3
"""Kinds: nodes, Services, and the ConfigMap of SSH keys."""
EACH_SECOND = Law(1.0, 1.0)
"""A new leader checks so whether the API server is healthy."""
TOLD = 2
"""Maximum events of one pass over an object: that it starts, and how it ended."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one part of the manager."""

    law: Law
    over: tuple[str, ...] = (NODES, SERVICES, RANGES)
    """The objects of its passes."""
    calls: int = 2
    """Maximum of each kind in a pass over one object: the failing call and its report, or an
    observation and, after a change, one more. Successful calls are not repeated."""

    def size(self, things: Things) -> int:
        """How many objects it passes over, plus one for all together."""
        return 1 + sum(len(things.get(kind, ())) for kind in self.over)


_KEYS = Rate(Law(ssh_keys.RETRIES.first, FILE_PERIOD), (NODES,))
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
    "volume-controller": Rate(LAWS["volume-controller"], OF_VOLUMES),
    "cloud volumes": Rate(LAWS["cloud volumes"], OF_VOLUMES),
    "shared-informers": Rate(Law(FIRST_DELAY, LONGEST_DELAY), (NODES, SERVICES), 1),
    "healthz": Rate(EACH_SECOND, (), 1),
}
ANY = Rate(OTHERS)
"""For parts that only some clouds have."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Requests of one observation of the cloud, as its provider declares."""

    check: int = 1
    """Of one load balancer."""
    lists: int = 1
    """Of all machines, load balancers or routes."""

    def of(self, agent: str) -> int:
        return self.check if agent == "cloud balancers" else self.lists


def most_calls(
    agent: str, channel: Channel, things: Things, election: Durations, costs: Costs
) -> int:
    """How many of this kind there may be in a minute without Retry-After."""
    if channel is Channel.LEASE:
        return ceil(LEASES * FOR_A_LEASE * MINUTE / election.retry)
    if channel is Channel.WATCH:
        return ceil(WATCHED * MINUTE / (FRUITLESS + FIRST_DELAY / 2))
    rate = RATES.get(agent, ANY)
    size = rate.size(things)
    passes = size * rate.law.passes(MINUTE)
    if channel is Channel.EVENT:
        # Written when it is reported; what fails once sooner, then in turn.
        return ceil(TOLD * (passes + size * (1 + MINUTE / RETRY)))
    if channel is Channel.CLOUD_READ:
        return ceil(max(rate.calls, costs.of(agent)) * passes)
    return ceil(rate.calls * passes)
