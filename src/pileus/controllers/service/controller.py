"""The service controller: queues, workers and the orphan sweep around two informers."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from pileus.cloud.balancer import Balancers
from pileus.cloud.interface import Cloud
from pileus.cloud.members import shared_addresses
from pileus.cloud.model import NodeRef
from pileus.cloud.options import SELECTS_MEMBERS
from pileus.cloud.selectors import Selector
from pileus.controllers.service.annotations import (
    Classes,
    MemberScope,
    is_load_balancer,
    member_scope,
)
from pileus.controllers.service.desired import Desires
from pileus.controllers.service.events import Reason, Reporter, shared_address
from pileus.controllers.service.members import (
    MEMBERS,
    Gathering,
    MemberChange,
    MemberRules,
    Membership,
    NewNodes,
    NodeRounds,
)
from pileus.controllers.service.notes import (
    UNKNOWN,
    DeletedServices,
    Notes,
    is_failing,
    is_keeping_members,
    is_waiting,
)
from pileus.controllers.service.observation import BalancerOperations, ClusterServices
from pileus.controllers.service.orphans import ROUND, Sweeper, SweepSettings
from pileus.controllers.service.plan import Rules, is_worth_a_pass
from pileus.controllers.service.preview import ServicePreview
from pileus.controllers.service.reconciler import Parts, ServiceReconciler
from pileus.controllers.service.settings import Policy, ServiceSettings
from pileus.controllers.service.status import has_finalizer, published_ingress, went_elsewhere
from pileus.kube.model.core_v1 import NODES, SERVICES, Service
from pileus.kube.store import NamespacedName
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents
from pileus.objects.nodes import about_node
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.backoff import default_policy, service_policy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.informers import BY_UID, UID_INDEX
from pileus.runtime.periodic import Periodic
from pileus.runtime.queue import Priority, WorkQueue

SERVICE_QUEUE, NODE_QUEUE = "service", "node"
WORKERS = 1000
"""Passes at a time. A pass mostly waits for the cloud; checks share calls, and the call budget
limits the load on the cloud."""


class ServiceController:
    """Gives every Service of type LoadBalancer its load balancer."""

    def __init__(
        self,
        context: ControllerContext,
        balancers: Balancers[Any, Any],
        settings: ServiceSettings,
        classes: Classes,
        *,
        sweep: SweepSettings | None = None,
    ) -> None:
        """`sweep`: other than `settings` say."""
        self._classes = classes
        self._sweep = sweep or SweepSettings(policy=settings.orphans, period=settings.sweep_period)
        self._context = context
        self._balancers = balancers
        self._settings = settings
        self._services = context.informers.of(SERVICES, UID_INDEX)
        self._nodes = context.informers.of(NODES)
        self._queue = WorkQueue[str](context.scoped(SERVICE_QUEUE), context.metrics)
        self._rounds = WorkQueue[str](context.scoped(NODE_QUEUE), context.metrics)
        self._cluster = ClusterServices(context.client, self._services.store, BY_UID)
        self._gathering = Gathering()
        rules = MemberRules(
            whose=context.scope.whose,
            is_of_another=context.scope.is_of_another,
            drain_cordoned=settings.drain_cordoned,
            labels=_counted_labels(context.scope.cloud),
            checks_claims=context.scope.cloud.instances is not None,
        )
        self._membership = Membership(self._cluster.list_nodes, self._members_changed, rules)
        self._new_nodes = NewNodes(rules, context.scope.cloud.abilities)
        self._nodes.subscribe(self._membership)
        self._nodes.subscribe(self._new_nodes)
        self._notices = ObjectEvents(context.events)
        self._notes = Notes(settings.drift_period, context.random, asyncio.get_running_loop().time)
        self._deleted = DeletedServices()
        self._controller: Controller[str] | None = None
        self._sweeps: Periodic | None = None

    async def run(self) -> None:
        """Work until cancelled; call once. Waits until Services, nodes and cluster ID are known."""
        self._gauge()
        context, parts = self._context, await self._parts()
        chance = context.random
        rounds = NodeRounds(
            self._notes,
            partial(self._current_members, parts.rules.desires),
            self._queue,
            self._gathering,
            context.metrics,
            self._report_shared_addresses,
        )
        self._controller = Controller(
            context.scoped(context.names.canonical),
            ServiceReconciler(parts, rounds.finished),
            self._queue,
            service_policy(chance),
            Limits(workers=self._settings.workers or self._context.affordable(WORKERS)),
        )
        node = Controller(
            f"{self._controller.name}/node", rounds, self._rounds, default_policy(chance)
        )
        handler = ServiceHandler(self._queue, self._notes, self._deleted, self._classes)
        self._services.subscribe(self._cluster.without_echoes(handler))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._controller.run())
            group.create_task(node.run())
            if self._sweep.policy is not Policy.IGNORE:
                self._sweeps = self._sweep_rounds(parts)
                group.create_task(self._sweeps.run())

    def stuck(self, limit: float) -> str | None:
        """Returns the message for a health check if a pass or sweep is running for too long."""
        running = (self._controller, self._sweeps)
        return next(filter(None, (each and each.stuck(limit) for each in running)), None)

    def failing(self) -> str | None:
        """Returns the message for a health check if the orphan sweep keeps failing."""
        return None if self._sweeps is None else self._sweeps.failing()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns what the passes over Services would change now; changes nothing.

        Raises CloudError if the cloud cannot be asked at all.
        """
        parts, given = await self._parts(), self._settings
        preview = ServicePreview(parts, self._sweep, repairs_drift=given.drift_period > 0)
        return await preview.of(scope)

    def _members_changed(self, change: MemberChange) -> None:
        now = asyncio.get_running_loop().time()
        self._gathering.changed(now, change)
        self._rounds.add_after(MEMBERS, self._gathering.wait(now))

    def _report_shared_addresses(self) -> None:
        """Warn on nodes with the address of another one: load balancers reach only one of them."""
        if self._context.scope.cloud.abilities.members_by_provider_id:
            return
        shared = shared_addresses(self._membership.now(MemberScope.CLOUD))
        for address, names in sorted(shared.items()):
            keys = (NamespacedName("", name) for name in names)
            for node in filter(None, map(self._nodes.store.get, keys)):
                self._notices.warn(
                    about_node(node), Reason.SHARED_ADDRESS, shared_address(address, names)
                )

    def _current_members(
        self, desires: Desires, uid: str, selector: Selector
    ) -> frozenset[NodeRef]:
        service = self._cluster.service(uid)
        scope = member_scope(service) if service else MemberScope.CLOUD
        return desires.given(self._membership.now(scope), selector)

    def _sweep_rounds(self, parts: Parts) -> Periodic:
        context = self._context
        sweeper = Sweeper(parts, self._queue, self._notices, self._sweep)
        return Periodic(
            context.scoped(ROUND),
            lambda: sweeper.round(context.random),
            context.metrics,
            context.random,
        )

    async def _parts(self) -> Parts:
        await self._services.wait_synced()
        await self._nodes.wait_synced()
        context, cloud = self._context, self._context.scope.cloud
        desires = Desires(
            cluster=await context.cluster_id(),
            annotations=cloud.annotations,
            abilities=cloud.abilities,
            trusted=frozenset(self._settings.trusted_namespaces),
        )
        return Parts(
            rules=Rules(desires, self._classes),
            cluster=self._cluster,
            balancers=BalancerOperations(
                self._balancers, self._cluster.service, self._context.scope.cloud.annotations
            ),
            membership=self._membership,
            new_nodes=self._new_nodes,
            notes=self._notes,
            deleted=self._deleted,
            reporter=Reporter(self._cluster, self._notes, self._notices, context.clock),
            clock=context.clock,
            metrics=context.metrics,
            reconciled=cloud.reconciled,
        )

    def _gauge(self) -> None:
        metrics, notes = self._context.metrics, self._notes
        metrics.add_part(metrics.services_held, lambda: notes.count(is_keeping_members))
        metrics.add_part(metrics.services_pending, lambda: notes.count(is_waiting))
        metrics.add_part(metrics.services_failing, lambda: notes.count(is_failing))


class ServiceHandler:
    """Turns an informer's events of Services into keys of the queue."""

    def __init__(
        self, queue: WorkQueue[str], notes: Notes, deleted: DeletedServices, classes: Classes
    ) -> None:
        self._queue = queue
        self._notes = notes
        self._deleted = deleted
        self._classes = classes

    def added(self, new: Service, /) -> None:
        """Queue it; Services that seem to be up to date come after the others."""
        if self._concerns_us(new):
            seems_ready = has_finalizer(new) and bool(published_ingress(new))
            is_urgent = new.metadata.deletion_timestamp is not None or not seems_ready
            priority = Priority.URGENT if is_urgent else Priority.REFRESH
            self._queue.add(new.metadata.uid, priority)

    def updated(self, old: Service, new: Service, /) -> None:
        """Queue it if a pass may have something to do; a resync of the informer has not."""
        if old is new or not is_worth_a_pass(old, new):
            return
        if self._concerns_us(old) or self._concerns_us(new):
            self._queue.add(new.metadata.uid)

    def deleted(self, old: Service, /) -> None:
        """Queue it; if its finalizer was not removed by us it may have left a load balancer."""
        uid = old.metadata.uid
        if self._notes.is_released(uid):
            self._notes.forget(uid)
        elif self._is_known(uid) or (has_finalizer(old) and self._was_served(old)):
            self._deleted.add(old, asyncio.get_running_loop().time())
        if self._concerns_us(old):
            self._queue.add(uid)

    def _concerns_us(self, service: Service) -> bool:
        is_lb = is_load_balancer(service) or has_finalizer(service)
        return is_lb or self._is_known(service.metadata.uid)

    def _was_served(self, service: Service) -> bool:
        return self._classes.serve(service) or went_elsewhere(service, self._classes)

    def _is_known(self, uid: str) -> bool:
        return (self._notes.find(uid) or UNKNOWN).known


def _counted_labels(cloud: Cloud) -> frozenset[str] | None:
    """Returns the labels of nodes that count for members; None: all, as annotations select them."""
    selects = cloud.annotations is not None and cloud.annotations.with_role(SELECTS_MEMBERS)
    return None if selects else cloud.abilities.member_labels
