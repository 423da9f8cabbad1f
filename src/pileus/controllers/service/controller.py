"""The service controller as one thing to run: queues, workers and rounds around two informers."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pileus.clock import Clock
from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Balancers
from pileus.cloud.options import Options
from pileus.controllers.service.classes import Classes
from pileus.controllers.service.cluster import ClusterServices
from pileus.controllers.service.departed import Departed
from pileus.controllers.service.handlers import ServiceHandler
from pileus.controllers.service.members import MemberRules
from pileus.controllers.service.membership import Membership
from pileus.controllers.service.notes import Notes
from pileus.controllers.service.orphans import Policy, Sweeper, SweepSettings
from pileus.controllers.service.preview import ServicePreview
from pileus.controllers.service.reconciler import ServiceReconciler
from pileus.controllers.service.rounds import GATHER, MEMBERS, NodeRounds
from pileus.controllers.service.teller import Teller
from pileus.controllers.service.tools import Tools
from pileus.controllers.service.turns import Turns
from pileus.controllers.service.wish import Wishing
from pileus.controllers.service.workshop import Workshop
from pileus.kube.client import Client
from pileus.kube.informer import Informer
from pileus.kube.model.core_v1 import Node, Service
from pileus.objects.events import ObjectEvents
from pileus.objects.ownership import Whose
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import default_policy, service_policy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.events import Recorder
from pileus.runtime.queue import WorkQueue
from pileus.runtime.supervision import Rounds
from pileus.telemetry.metrics import Metrics

SERVICE_QUEUE, NODE_QUEUE = "service", "node"
WORKERS = 1000
"""Passes at a time. Each waits for the cloud most of its time; looks travel together, and the
call budget limits what the cloud has to bear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    classes: Classes
    workers: int = WORKERS
    drift_period: float = 600.0
    """Average seconds between two full comparisons of a balancer with its Service; 0: none."""
    drain_cordoned: bool = False
    sweep: SweepSettings = field(default_factory=SweepSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the controller is put into."""

    client: Client
    services: Informer[Service]
    by_uid: str
    """The index of the Services' store by which one is found by its UID."""
    nodes: Informer[Node]
    whose: Whose
    balancers: Balancers[Any, Any]
    """With batching around it, so that concurrent looks become one call."""
    annotations: Options | None
    abilities: Abilities
    identify: Callable[[], Awaitable[str]]
    """Finds out the cluster's id, however long that takes; never a guess."""
    events: Recorder
    clock: Clock
    metrics: Metrics
    random: random.Random


class ServiceController:
    def __init__(self, around: Surroundings, settings: ServiceSettings) -> None:
        self._around = around
        self._settings = settings
        self._queue = WorkQueue[str](SERVICE_QUEUE, around.metrics)
        self._rounds = WorkQueue[str](NODE_QUEUE, around.metrics)
        self._cluster = ClusterServices(around.client, around.services.store, around.by_uid)
        self._membership = Membership(
            self._cluster.list_nodes,
            lambda: self._rounds.add_after(MEMBERS, GATHER),
            MemberRules(
                whose=around.whose,
                drain_cordoned=settings.drain_cordoned,
                labels=around.abilities.member_labels,
            ),
        )
        around.nodes.subscribe(self._membership)
        self._notices = ObjectEvents(around.events)
        self._notes = Notes(settings.drift_period, around.random, asyncio.get_running_loop().time)
        self._departed = Departed()
        self._controller: Controller[str] | None = None
        self._sweeps: Rounds | None = None
        self._gauge()

    async def run(self) -> None:
        """Work until cancelled, once all Services and nodes are known; call once."""
        await self._around.services.wait_synced()
        await self._around.nodes.wait_synced()
        tools = self._tools(await self._around.identify())
        rounds = NodeRounds(
            self._notes,
            lambda: tools.wishing.given(self._membership.now()),
            self._queue,
            self._around.metrics,
        )
        reconciler = ServiceReconciler(tools, self._departed, rounds.finished)
        sweeper = Sweeper(tools, self._departed, self._queue, self._notices)
        self._sweeps = sweeper.rounds
        chance = self._around.random
        self._controller = Controller(
            "service-lb-controller",
            reconciler,
            self._queue,
            service_policy(chance),
            Limits(workers=self._settings.workers),
        )
        node = Controller(
            "service-lb-controller/node", rounds, self._rounds, default_policy(chance)
        )
        handler = ServiceHandler(self._queue, self._notes, self._departed, self._settings.classes)
        self._around.services.subscribe(self._cluster.without_echoes(handler))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(node.run())
            if self._settings.sweep.policy is not Policy.IGNORE:
                group.create_task(sweeper.run(self._settings.sweep, chance))

    def stuck(self, limit: float) -> str | None:
        """What to tell a health check if a pass has been in hand for longer than `limit`."""
        return None if self._controller is None else self._controller.stuck(limit)

    def failing(self) -> str | None:
        """The message for a health check if the orphan sweep keeps failing."""
        return None if self._sweeps is None else self._sweeps.health()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """What the passes over Services would change now; changes nothing.

        Errors: `CloudError`, if nothing at all can be said.
        """
        await self._around.services.wait_synced()
        await self._around.nodes.wait_synced()
        tools = self._tools(await self._around.identify())
        given = self._settings
        preview = ServicePreview(
            tools, self._around.clock, given.sweep, repairs_drift=given.drift_period > 0
        )
        return await preview.of(scope)

    def _tools(self, cluster_id: str) -> Tools:
        return Tools(
            cluster=self._cluster,
            membership=self._membership,
            workshop=Workshop(self._around.balancers, self._cluster.service),
            turns=Turns(),
            notes=self._notes,
            teller=Teller(self._cluster, self._notices, self._around.clock),
            wishing=Wishing(
                cluster=cluster_id,
                annotations=self._around.annotations,
                abilities=self._around.abilities,
            ),
            classes=self._settings.classes,
            metrics=self._around.metrics,
        )

    def _gauge(self) -> None:
        metrics, number = self._around.metrics, self._notes.count
        metrics.services_held.set_function(lambda: number(lambda n: n.held_since is not None))
        metrics.services_pending.set_function(lambda: number(lambda n: n.waiting_since is not None))
        metrics.services_failing.set_function(lambda: number(lambda n: n.failing_since is not None))
