"""Several clouds in one manager: each is connected, restarted and reported on its own.

cloud a: connect ──▶ start ──▶ controllers of a      one that is down or hangs
cloud b: connect ──▶ start ──▶ controllers of b      delays no other
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from pileus.app.context import ManagerContext
from pileus.app.node_assignment import JointInstances, NodeAssignment
from pileus.app.provider_access import provider_started
from pileus.app.startup import World, connect_cloud
from pileus.cloud.choice import CloudChoice, CloudSettings
from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.model import Found, NodeName, NodeRef
from pileus.cloud.provider_context import is_its_own
from pileus.kube.model.core_v1 import NODES, SERVICES, ObjectReference, Service
from pileus.objects.cloud_scope import CLASS_PREFIX, CloudScope
from pileus.objects.events import ObjectEvents
from pileus.objects.node_clouds import NodeClouds
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.events import Recorder
from pileus.runtime.supervision import Supervised
from pileus.server.health import Health
from pileus.telemetry.log import Log, logging_cloud

log = Log(__name__)

UNKNOWN_CLASS = "UnknownLoadBalancerClass"
Guard = Callable[[Cloud], Cloud]
"""What is put around the provider first, such as `read_only` for plans."""


def unguarded(cloud: Cloud) -> Cloud:
    return cloud


class NotConnected:
    """The instances of a cloud that is not connected yet."""

    def __init__(self, why: Callable[[], str]) -> None:
        self._why = why

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:  # noqa: ARG002 -- as the contract has it
        raise Unavailable(self._why())


class CloudSlot:
    """One cloud of the manager, connected or not."""

    def __init__(
        self,
        process: ManagerContext,
        world: World,
        choice: CloudChoice,
        nodes: NodeClouds,
        guard: Guard,
    ) -> None:
        self.choice = choice
        self._nodes = nodes
        self._guard = guard
        self._process = process
        self._world = world
        self._metrics = process.metrics.for_cloud(choice.name)
        loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[ManagerContext] = loop.create_future()
        self.tried = asyncio.Event()
        """Set after the first attempt to connect."""
        self.used: ManagerContext | None = None
        """The context with middleware, once controllers can use it."""
        self.in_use = asyncio.Event()
        self._failure = ""
        self._lost: str | None = None
        self._keeping = Supervised(
            f"cloud-connection@{choice.name}", self._keep, process.random, process.metrics
        )

    @property
    def name(self) -> str:
        return self.choice.name

    def placeholder(self) -> Cloud:
        """Returns what stands for the cloud until it is connected."""
        return Cloud(
            name=self.choice.provider,
            instances=NotConnected(lambda: self.problem() or "the cloud is not connected"),
        )

    def context_now(self) -> ManagerContext:
        """Returns the context of the cloud; until it is connected, lookups of machines fail."""
        return self.used or self._made(self.placeholder())

    async def wait(self) -> ManagerContext:
        """Returns the context once the cloud is connected."""
        return await asyncio.shield(self._connected)

    def problem(self) -> str | None:
        """Returns a message for the readiness check while the cloud is not connected."""
        if self._connected.done():
            return self._lost
        return f"cloud {self.name} is not connected: {self._failure or 'connecting'}"

    def lost(self) -> str | None:
        """Returns a message for the liveness check if the connection has ended.

        Controllers keep the cloud that they were built with, so only a restart can help.
        """
        return self._lost

    async def keep_connected(self) -> None:
        """Connect, with backoff if that fails, and stay connected until cancelled."""
        with logging_cloud(self.name):
            await self._keeping.run()

    async def _keep(self) -> None:
        config = self._process.config
        try:
            async with connect_cloud(config, self._world, self.choice) as cloud:
                await self._stay(self._made(self._guard(cloud)))
        except BaseException as error:
            if not is_its_own(error):
                raise
            if self._connected.done():
                self._end(error)
                return
            self._failure = str(error) or type(error).__name__
            self.tried.set()
            raise

    def _end(self, error: BaseException) -> None:
        self._lost = (
            f"the connection to cloud {self.name} was ended by its provider ({error!r}); see the "
            "log. The manager has to be restarted to connect again"
        )
        log.error("Connection to cloud was ended by its provider", error=error)

    async def _stay(self, context: ManagerContext) -> None:
        if context.scope.cloud.metrics is not None:
            self._metrics.registry.add_source(context.scope.cloud.metrics)
        async with provider_started(context):
            self._connected.set_result(context)
            self.tried.set()
            log.info("Connected to cloud", provider=self.choice.provider)
            await asyncio.Event().wait()

    def _made(self, cloud: Cloud) -> ManagerContext:
        scope = CloudScope(
            name=self.name,
            cloud=cloud,
            whose=self._nodes.whose_in(self.name),
            is_of_another=self._nodes.is_of_another(self.name),
            is_default=self.choice.default,
            is_only=False,
            classes=self.choice.classes,
            other_classes=self._other_classes(),
        )
        return replace(self._process, scope=scope, metrics=self._metrics, clouds=None)

    def _other_classes(self) -> frozenset[str]:
        others = [
            one for one in self._process.config[CloudSettings].clouds if one.name != self.name
        ]
        named = {name for one in others for name in (f"{CLASS_PREFIX}{one.name}", *one.classes)}
        return frozenset({*named, *("" for one in others if one.default)})


class Clouds:
    """All clouds of a manager with several, and which node belongs to which."""

    def __init__(
        self,
        process: ManagerContext,
        world: World,
        events: Recorder,
        guard: Guard = unguarded,
    ) -> None:
        choices = process.config[CloudSettings].clouds
        self.process = replace(process, clouds=self)
        default = next((one.name for one in choices if one.default), choices[0].name)
        self.nodes = NodeClouds({}, caretaker=default)
        self.slots = tuple(
            CloudSlot(self.process, world, choice, self.nodes, guard) for choice in choices
        )
        self.nodes.clouds.update({slot.name: slot.placeholder() for slot in self.slots})
        nodes = process.informers.of(NODES)
        self.events = ObjectEvents(events)
        self.assignment = NodeAssignment(
            self.nodes, nodes, self.events, process.metrics, process.random
        )
        self.classes = ClassCheck(self.process, choices, self.events)

    def contexts(self) -> tuple[ManagerContext, ...]:
        """Returns the contexts of the clouds that controllers can use."""
        return tuple(slot.used for slot in self.slots if slot.used is not None)

    def use(self, slot: CloudSlot, context: ManagerContext) -> None:
        """From now on, nodes can be looked up in this cloud. `context` has its middleware."""
        self.nodes.clouds[slot.name] = context.cloud
        slot.used = self.joined(context)
        slot.in_use.set()
        self.assignment.check_all()

    def joined(self, context: ManagerContext) -> ManagerContext:
        """Returns the context with lookups that ask all clouds where only that can decide."""
        name, cloud = context.scope.name, context.cloud
        if cloud.instances is None:
            return context
        return context.with_cloud(
            replace(cloud, instances=JointInstances(name, cloud.instances, self.assignment))
        )

    @asynccontextmanager
    async def connecting(self, health: Health | None = None) -> AsyncGenerator[None]:
        """Keep all clouds connected during the block; one that is down delays no other."""
        if health is not None:
            self.report_to(health)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(slot.keep_connected(), name=f"cloud-connection@{slot.name}")
                for slot in self.slots
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def report_to(self, health: Health) -> None:
        """Let the readiness check report clouds that are not connected."""
        for slot in self.slots:
            health.add(f"cloud-connection@{slot.name}", slot.problem, live=False)
            health.add(f"cloud-connection-lost@{slot.name}", slot.lost, ready=False)

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Assigns nodes to clouds. Returns nodes and Services that belong to no cloud."""
        unserved = await self.classes.preview(scope)
        return [*await self.assignment.preview(scope), *unserved]


def _about_service(service: Service) -> ObjectReference:
    return ObjectReference(
        api_version="v1",
        kind="Service",
        namespace=service.metadata.namespace,
        name=service.metadata.name,
        uid=service.metadata.uid,
    )


class ClassCheck:
    """Reports Services with a load balancer class of ours that no cloud serves."""

    def __init__(
        self, process: ManagerContext, choices: Sequence[CloudChoice], events: ObjectEvents
    ) -> None:
        self._events = events
        self._served = {f"{CLASS_PREFIX}{one.name}": one.name for one in choices}
        self._served |= {name: one.name for one in choices for name in one.classes}
        is_watched = any(SERVICES in each.kinds for each in process.enabled())
        self._services = process.informers.of(SERVICES) if is_watched else None

    def subscribe(self) -> None:
        if self._services is not None:
            self._services.subscribe(self)

    async def preview(self, scope: Scope) -> Sequence[Trouble]:
        if self._services is None:
            return ()
        await self._services.wait_synced()
        found = (self._trouble(service) for service in self._services.store.list())
        return [each for each in found if each and scope.has(each.about)]

    def added(self, new: Service, /) -> None:
        trouble = self._trouble(new)
        if trouble is not None:
            self._events.warn(trouble.about, trouble.reason, trouble.message)
            log.warning("No cloud serves the class of a Service", why=trouble.message)

    def updated(self, old: Service, new: Service, /) -> None:
        if old is not new:
            self.added(new)

    def deleted(self, old: Service, /) -> None:
        """Nothing to report."""

    def _trouble(self, service: Service) -> Trouble | None:
        spec = service.spec
        named = (spec and spec.type == "LoadBalancer" and spec.load_balancer_class) or ""
        if not named.startswith(CLASS_PREFIX) or named in self._served:
            return None
        known = ", ".join(f"{name} (cloud {cloud})" for name, cloud in self._served.items())
        return Trouble(
            _about_service(service),
            UNKNOWN_CLASS,
            f"no cloud of this manager serves the class {named}. Known classes: {known}. "
            "Fix: create the Service again with one of them; the class of a Service cannot change",
        )
