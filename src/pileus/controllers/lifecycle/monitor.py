"""Look after nodes that are not ready: ask the cloud about many at once, then act on each.

    woken, or the period is over ──▶ nodes not in hand ──▶ chunks ──look up──▶ knowledge ──▶ steps

A node is in hand from being chosen until its last write; a slow call or write holds up nobody else.
Nodes that are ready cost no call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pileus.cloud.interface import Instances
from pileus.cloud.model import Instance, InstanceState
from pileus.controllers.lifecycle.guard import Guard, Rules
from pileus.controllers.lifecycle.knowledge import Knowledge, Seen
from pileus.controllers.lifecycle.observation import View, look_at, look_first
from pileus.controllers.lifecycle.plan import (
    RECOVERED,
    Delete,
    Policy,
    Wanted,
    is_out_of_service,
    needs_recovery,
    subject_of,
)
from pileus.controllers.lifecycle.reconciler import Actor
from pileus.controllers.lifecycle.telling import Teller
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import CHUNK, Answer, chunks
from pileus.objects.nodes import is_ready
from pileus.objects.ownership import Ownership
from pileus.runtime.periodic import all_of
from pileus.runtime.supervision import Rounds

ROUND, SCHEDULE = "node-monitor", "node-monitor-schedule"
LOOK_UPS = 8
"""Calls to the cloud under way at the same time."""
GATHERING = 0.25
"""Seconds that nodes which turned not ready wait for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleSettings:
    period: float = 5.0
    """Seconds between two looks at all nodes that are not ready (`--node-monitor-period`)."""
    concurrency: int = 100
    """Nodes written at the same time (`--concurrent-node-lifecycle-syncs`)."""
    policy: Policy = Policy.GUARDED
    rules: Rules = field(default_factory=Rules)
    takes_out_of_service: bool = False

    def __post_init__(self) -> None:
        if self.period <= 0:
            raise ValueError(f"the period of looks must be positive, not {self.period:g}")
        if self.concurrency < 1:
            raise ValueError(f"at least one node must be written at a time, not {self.concurrency}")

    def knowledge(self) -> Knowledge:
        """What is known at the start: nothing."""
        return Knowledge(
            policy=self.policy,
            takes_out_of_service=self.takes_out_of_service,
            gone=Guard(rules=self.rules),
            stopped=Guard(rules=self.rules),
        )


class NodeMonitor:
    def __init__(
        self,
        view: View,
        instances: Instances,
        actor: Actor,
        teller: Teller,
        settings: LifecycleSettings,
    ) -> None:
        self._view = view
        self._instances = instances
        self._actor = actor
        self._teller = teller
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._in_hand: dict[str, float] = {}
        self._woken: set[str] = set()
        self._reminders: set[asyncio.TimerHandle] = set()
        self._wake = asyncio.Event()
        self._calls = asyncio.Semaphore(LOOK_UPS)
        self._rounds = Rounds(ROUND, teller.metrics)
        self._schedule = Rounds(SCHEDULE, teller.metrics)
        self.knowledge = settings.knowledge()

    async def run(self) -> None:
        """Look at all nodes at once, then each period; in between at those that are woken."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._schedule.run(lambda: self._look_around(group))
        finally:
            for reminder in self._reminders:
                reminder.cancel()

    async def _look_around(self, group: asyncio.TaskGroup) -> float:
        """One period: all nodes at its beginning, then those that are woken.

        Returns the seconds until the next period, which failed rounds postpone.
        """
        self._called()  # all are looked at: whoever was woken is among them
        nodes = self._view.nodes()
        self._actor.keep(nodes)
        group.create_task(self._isolated(nodes))
        until = _now() + self._settings.period
        while await self._is_woken(until) and not self._rounds.rest():
            group.create_task(self._isolated(self._called()))
        return self._rounds.rest()

    async def _isolated(self, nodes: Sequence[Node]) -> None:
        await self._rounds.attempt(lambda: self._round(nodes))

    def wake(self, name: str) -> None:
        """Something happened to the node: look at it soon."""
        self._woken.add(name)
        self._wake.set()

    def changed(self, node: Node) -> None:
        """The node is not what it was: look at it soon, even if it was to be left alone."""
        self._actor.rouse(node)
        self.wake(node.metadata.name)

    def forget(self, node: Node) -> None:
        """The node is ready, or gone: whatever was the matter with its machine is over."""
        self.knowledge = self.knowledge.without(node.metadata.uid)

    def stuck(self, limit: float) -> str | None:
        """What to tell a health check if a node has been in hand for longer than `limit`."""
        in_hand = list(self._in_hand.items())  # health checks run in threads
        now = self._loop.time()
        name, since = min(in_hand, key=lambda item: item[1], default=("", now))
        age = now - since
        return f"node {name} has been in hand for {age:.0f} s" if age > limit else None

    def failing(self) -> str | None:
        """The message for a health check if rounds keep failing."""
        return self._rounds.health() or self._schedule.health()

    async def _is_woken(self, until: float) -> bool:
        """Wait until then, or for nodes to look at earlier."""
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(max(0.0, min(GATHERING, until - _now())))
        return _now() < until

    def _called(self) -> Sequence[Node]:
        """The nodes that were woken since this was asked last."""
        names, self._woken = self._woken, set()
        self._wake.clear()
        found = (self._view.node(name) for name in sorted(names))
        return [node for node in found if node is not None]

    async def _round(self, nodes: Sequence[Node]) -> None:
        began = _now()
        if self._teller.is_blind(self._view.blindness()):
            return
        self._reckon()
        chosen = [node for node in nodes if self._is_free(node)]
        away = [node for node in chosen if not is_ready(node)]
        work: list[Callable[[], Awaitable[None]]] = []
        for node in chosen:
            if is_ready(node) and needs_recovery(node):
                self._take([node])
                work.append(partial(self._released, node, partial(self._act, node, RECOVERED)))
        for chunk in chunks(away, CHUNK):
            self._take(chunk)
            work.append(partial(self._look_at, chunk))
        await all_of(work)
        self._teller.metrics.monitor_duration.observe(_now() - began)

    def _is_free(self, node: Node) -> bool:
        """Whether there may be something to do: it is ours to look at, and not in hand already."""
        name = node.metadata.name
        if not name or name in self._in_hand or node.metadata.deletion_timestamp:
            return False
        if self._actor.is_resting(node):
            return False
        if is_ready(node) and not needs_recovery(node):
            return False
        return self._view.whose(node) is not Ownership.FOREIGN

    def _take(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._in_hand[node.metadata.name] = _now()

    async def _released(self, node: Node, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work on a node in hand, and release the node. Its failure harms no other node."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 -- the node rests, like the key of a failed pass
            self._rounds.count()
            self._actor.stumbled(node, error)
        finally:
            self._in_hand.pop(node.metadata.name)

    async def _look_at(self, nodes: Sequence[Node]) -> None:
        try:
            seen = await self._observed(nodes)
        except BaseException:
            for node in nodes:
                self._in_hand.pop(node.metadata.name)
            raise
        await all_of([
            partial(self._released, node, partial(self._conclude, seen[node.metadata.name]))
            for node in nodes
        ])

    async def _observed(self, nodes: Sequence[Node]) -> Mapping[str, Seen | None]:
        async with self._calls:
            began = _now()
            answers = await self._teller.counted(nodes, self._asked(nodes))
        seen = {node.metadata.name: self._seen(node, answers) for node in nodes}
        self._hear([each for each in seen.values() if each], began)
        return seen

    def _asked(self, nodes: Sequence[Node]) -> Awaitable[Mapping[str, Answer]]:
        """With witnesses, where an answer may lead to a deletion."""
        if self._settings.policy is not Policy.GUARDED:
            return look_at(self._instances, nodes, ())
        if any(node.metadata.uid in self.knowledge.gone.suspects for node in nodes):
            return look_at(self._instances, nodes, self._view.witnesses())
        return look_first(self._instances, nodes, self._view.witnesses)

    def _seen(self, asked: Node, answers: Mapping[str, Answer]) -> Seen | None:
        """The node as it is now with its answer; None if that was about what it is no longer."""
        node = self._view.node(asked.metadata.name)
        if node is None or node.metadata.deletion_timestamp or is_ready(node):
            return None
        whose = self._view.whose(node)
        if whose is Ownership.FOREIGN or subject_of(node) != subject_of(asked):
            return None
        return Seen(node, whose, answers[asked.metadata.name])

    def _hear(self, seen: Sequence[Seen], began: float) -> None:
        before = self.knowledge
        self.knowledge = before.heard(seen, began=began, ended=_now(), ours=self._ours(seen))
        new = self.knowledge.suspects - before.suspects
        self._remind([e.node.metadata.name for e in seen if e.node.metadata.uid in new])
        self._teller.tell_breakers(before, self.knowledge)

    def _remind(self, names: Sequence[str]) -> None:
        """Look at them once more as soon as that can confirm what was said."""
        if not names:
            return
        loop = asyncio.get_running_loop()

        def remind() -> None:
            self._reminders.discard(reminder)
            for name in names:
                self.wake(name)

        reminder = loop.call_later(self._settings.rules.grace, remind)
        self._reminders.add(reminder)

    def _reckon(self) -> None:
        """Forget what is over, and count again, even if nobody is looked at."""
        before = self.knowledge
        if before.is_blank:
            return
        away = [node for node in self._view.nodes() if not is_ready(node)]
        self.knowledge = before.kept(map(subject_of, away), _now(), self._ours(()))
        self._teller.tell_breakers(before, self.knowledge)

    def _ours(self, seen: Iterable[Seen]) -> frozenset[str]:
        """The UIDs of all nodes of this cloud; none if there is no case to count them for."""
        if self.knowledge.is_blank and all(_is_well(each.answer) for each in seen):
            return frozenset()
        nodes = self._view.nodes()
        whose = self._view.whose
        return frozenset(n.metadata.uid for n in nodes if whose(n) is Ownership.OURS)

    async def _conclude(self, seen: Seen | None) -> None:
        """Do what follows for a node from what was seen of it, if anything was."""
        match self.knowledge.step(seen) if seen else None:
            case Delete(evidence) if seen:
                await self._delete(seen, evidence)
            case Wanted() as wanted if seen:
                if not self._actor.tell(seen.node, wanted):
                    await self._act(seen.node, wanted)
            case _:
                pass

    async def _act(self, node: Node, wanted: Wanted) -> None:
        if wanted.out_of_service and not is_out_of_service(node):
            self.knowledge = self.knowledge.taking_out_of_service(node.metadata.uid, _now())
        await self._actor.bring(node, wanted)

    async def _delete(self, seen: Seen, evidence: str) -> None:
        def condemned(fresh: Node) -> bool:
            """Decided anew from the newest state, just before the request."""
            same = subject_of(fresh) == subject_of(seen.node) and not is_ready(fresh)
            again = replace(seen, node=fresh, whose=self._view.whose(fresh))
            ours = again.whose is not Ownership.FOREIGN and not fresh.metadata.deletion_timestamp
            doomed = same and ours and isinstance(self.knowledge.step(again), Delete)
            if doomed:
                self.knowledge = self.knowledge.deleting(fresh.metadata.uid, _now())
            return doomed

        await self._actor.delete(seen.node, evidence, condemned)


def _is_well(answer: Answer) -> bool:
    """Whether nothing is to be guarded against."""
    return isinstance(answer, Instance) and answer.state is not InstanceState.STOPPED


def _now() -> float:
    return asyncio.get_running_loop().time()
