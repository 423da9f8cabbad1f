"""Tell the operator: logs once per change, and the metrics of this controller."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from pileus.cloud.errors import CloudError, Unsupported
from pileus.cloud.model import Absent, Instance
from pileus.controllers.lifecycle.guard import Guard
from pileus.controllers.lifecycle.knowledge import Knowledge
from pileus.controllers.lifecycle.plan import approval_by_hand, taint_by_hand
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import Answer
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

EXISTS, SHUTDOWN = "instance_exists", "instance_shutdown"
"""A look-up in bulk counts, for each node, as the calls that the Go framework would make."""


class Teller:
    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._failing: frozenset[str] = frozenset()
        self._is_blind = False
        self.tell_breakers(Knowledge(), Knowledge())

    async def counted(
        self, nodes: Sequence[Node], asked: Awaitable[Mapping[str, Answer]]
    ) -> Mapping[str, Answer]:
        """The answers, once they are counted and what failed is told."""
        try:
            answers = await asked
        except asyncio.CancelledError:
            self._count(EXISTS, "canceled", len(nodes))
            raise
        for answer in answers.values():
            self._count_answer(answer)
        self._tell_failures(answers)
        return answers

    def is_blind(self, why: str) -> bool:
        """Whether nothing may be concluded now, told when it begins and ends."""
        if why and not self._is_blind:
            log.warning("Nodes are not looked after: the view of the cluster may be old", why=why)
        elif self._is_blind and not why:
            log.info("Nodes are looked after again")
        self._is_blind = bool(why)
        return self._is_blind

    def tell_breakers(self, before: Knowledge, after: Knowledge) -> None:
        _tell_breaker("delete", before.gone, after.gone, approval_by_hand("NAME"))
        _tell_breaker("out_of_service", before.stopped, after.stopped, taint_by_hand("NAME"))
        for action, guard in (("delete", after.gone), ("out_of_service", after.stopped)):
            self.metrics.node_breaker_open.labels(action).set(guard.is_open)
            self.metrics.nodes_held.labels(action).set(guard.held)

    def _tell_failures(self, answers: Mapping[str, Answer]) -> None:
        failed: dict[str, list[str]] = {}
        for name, answer in answers.items():
            if isinstance(answer, CloudError):
                failed.setdefault(type(answer).__name__, []).append(name)
        for kind in failed.keys() - self._failing:
            names = failed[kind]
            log.warning(
                "Nodes that are not ready could not be looked up; nothing is concluded",
                nodes=len(names),
                such_as=names[0],
                err=answers[names[0]],
            )
        self._failing = frozenset(failed)

    def _count_answer(self, answer: Answer) -> None:
        match answer:
            case Instance():
                self._count(EXISTS, "success")
                self._count(SHUTDOWN, "success")
            case Absent():
                self._count(EXISTS, "instance_not_found")
            case Unsupported():
                self._count(EXISTS, "not_implemented")
            case CloudError():
                self._count(EXISTS, "error")

    def _count(self, operation: str, result: str, times: int = 1) -> None:
        self.metrics.lifecycle_calls.labels(operation, result).inc(times)


def _tell_breaker(action: str, before: Guard, after: Guard, resume: str) -> None:
    share = after.share
    if after.is_open and not before.is_open:
        log.warning(
            "Too many nodes at once: none is acted on until they are fewer, or a human says so",
            action=action,
            nodes=share.going,
            limit=share.limit,
            of=share.nodes,
            resume=resume,
        )
    elif before.is_open and not after.is_open:
        log.info("Nodes are acted on again", action=action, nodes=share.going, limit=share.limit)
