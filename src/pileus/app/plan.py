"""Plans: the previews of all controllers. Nothing is written to cluster or cloud.

connections (reads only) ▸ provider (reads only) ▸ its start ▸ informers ▸ previews
"""

import asyncio
from collections.abc import AsyncGenerator, Container, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field, replace
from functools import partial

from pileus.app.background import background
from pileus.app.clients import Clients
from pileus.app.clouds import Clouds, CloudSlot, Guard
from pileus.app.context import BuiltController, ManagerContext
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.leader import API_PATIENCE, provider_leading, wait_for_api_server
from pileus.app.node_assignment import NAME as ASSIGNMENT
from pileus.app.settings import ManagerSettings
from pileus.app.startup import World, choose_provider, connections, make_context, provider
from pileus.cloud.balancer import Effect
from pileus.cloud.choice import CloudSettings
from pileus.cloud.errors import CloudError
from pileus.cloud.middleware.stack import Equipment, read_only, stacked
from pileus.dataclass import dataclass
from pileus.fence import Open
from pileus.kube.errors import CredentialsError, KubeError, Unauthorized
from pileus.kube.model.core_v1 import ObjectReference
from pileus.kube.transport import reads
from pileus.objects.preview import Planned, Preview, Scope, Trouble, title
from pileus.settings.config import Config
from pileus.telemetry.log import Log, logging_cloud

log = Log(__name__)

CHECK_INTERVAL = 0.1
"""Seconds between two checks whether an informer cannot list its objects."""
LONGEST = 300.0
"""Seconds that one controller has for its preview; longer than any lookup may take."""
NOTHING: frozenset[str] = frozenset()
PATIENCE = 10.0
"""Seconds without an answer of the API server after which a plan fails."""


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One line of a plan, and the controller that it is from."""

    controller: str
    line: Planned | Trouble


def _nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Plan:
    """Planned changes and blocked objects of all controllers, in the order of their previews."""

    lines: tuple[PlanLine, ...] = ()
    failures: Mapping[str, str] = field(default_factory=_nothing, hash=False)
    """Controllers whose preview failed, and why."""
    skipped: Mapping[str, str] = field(default_factory=_nothing, hash=False)
    """Controllers that would not run here, and why."""

    @property
    def changes(self) -> Iterable[tuple[str, Planned]]:
        return [(it.controller, it.line) for it in self.lines if isinstance(it.line, Planned)]

    @property
    def troubles(self) -> Iterable[tuple[str, Trouble]]:
        return [(it.controller, it.line) for it in self.lines if isinstance(it.line, Trouble)]

    @property
    def is_whole(self) -> bool:
        """Whether every preview succeeded and no object is blocked."""
        return not self.failures and not self.troubles

    def count(self, effect: Effect) -> int:
        """Returns the number of changes with this effect, including those that wait."""
        return sum(change.effect is effect for _, change in self.changes)

    @property
    def waiting(self) -> int:
        return sum(bool(change.waits_for) for _, change in self.changes)


@asynccontextmanager
async def read_only_context(
    config: Config, world: World, *, may: frozenset[str] = NOTHING
) -> AsyncGenerator[ManagerContext]:
    """Open the manager's context with read-only clients and clouds. Takes no lease, opens no port.

    `may` names the methods of the cloud that are allowed to write. Raises the errors of the
    manager's start, possibly in a group.
    """
    config = config.having(replace(config[ManagerSettings], dry_run=True))
    metrics = world.metrics()
    async with connections(config, world, metrics, permits=reads) as clients:
        await _check_credentials(clients)
        guard = partial(read_only, but=may)
        async with AsyncExitStack() as stack:
            if len(config[CloudSettings].clouds) > 1:
                context = _several(config, world, clients, guard)
            else:
                cloud = await stack.enter_async_context(provider(config, world))
                context = make_context(config, world, clients, guard(cloud), Open())
            ready = started_context(context, patience=API_PATIENCE)
            yield await stack.enter_async_context(ready)


def _several(config: Config, world: World, clients: Clients, guard: Guard) -> ManagerContext:
    for choice in config[CloudSettings].clouds:
        choose_provider(config, world, choice)
    context = make_context(config, world, clients, None, Open())
    return Clouds(context, world, NoEvents(), guard).process


async def _check_credentials(clients: Clients) -> None:
    """Raises CommandFailed if the API server refuses the credentials: waiting does not help."""
    try:
        await clients.main("healthz").raw("GET", "/healthz")
    except (Unauthorized, CredentialsError) as error:
        raise CommandFailed(str(error)) from error
    except KubeError:
        return  # the caller waits for an API server that does not answer yet


@asynccontextmanager
async def started_context(
    context: ManagerContext, *, patience: float | None = None
) -> AsyncGenerator[ManagerContext]:
    """Start provider and informers, but no controller, for the length of the block.

    Raises Fatal if `patience` is given and the API server is not healthy within so many seconds.
    """
    await wait_for_api_server(context, patience=patience)
    if context.clouds is not None:
        async with background(context.informers.run()), _clouds_in_use(context.clouds):
            yield context
        return
    async with (
        provider_leading(context),
        _with_middleware(context) as ready,
        background(context.informers.run()),
    ):
        yield ready


@asynccontextmanager
async def _with_middleware(context: ManagerContext) -> AsyncGenerator[ManagerContext]:
    async with stacked(
        context.cloud, metrics=context.metrics, fence=context.fence, equipment=Equipment()
    ) as cloud:
        yield context.with_cloud(cloud)


@asynccontextmanager
async def _clouds_in_use(clouds: Clouds) -> AsyncGenerator[None]:
    """Connect to all clouds, and wait for the first attempt with each."""

    async def use(slot: CloudSlot) -> None:
        with logging_cloud(slot.name):
            async with _with_middleware(await slot.wait()) as ready:
                clouds.use(slot, ready)
                await asyncio.Event().wait()

    async with clouds.connecting(), asyncio.TaskGroup() as group:
        using = [group.create_task(use(slot)) for slot in clouds.slots]
        for slot in clouds.slots:
            await slot.tried.wait()
            if slot.problem() is None:
                await slot.in_use.wait()
        try:
            yield
        finally:
            for task in using:
                task.cancel()


class NoEvents:
    """The events of a plan, which writes none."""

    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        pass


class Planner:
    """Makes plans from the previews of the enabled controllers, which are built but never run."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._previews: dict[str, Preview] = {}
        self._skipped: dict[str, str] = {}
        self._built: set[str] = set()

    async def plan(self, scope: Scope) -> Plan:
        """Returns the plan of `scope`. The failure of one preview does not affect the others.

        Raises Fatal if the API server does not return its objects.
        """
        self._build()
        asked: dict[str, asyncio.Task[tuple[PlanLine, ...] | str]] = {}
        async with failing_if_unreadable(self._context):
            first = await self._assigned(scope)
            async with asyncio.TaskGroup() as group:
                for name, preview in self._previews.items():
                    asked[name] = group.create_task(_ask(name, preview, scope))
        answers = {**first, **{name: task.result() for name, task in asked.items()}}
        failures = {name: it for name, it in answers.items() if isinstance(it, str)}
        return Plan(
            without_aftermath(
                line for it in answers.values() if not isinstance(it, str) for line in it
            ),
            {**failures, **self._unconnected()},
            self._skipped,
        )

    def _build(self) -> None:
        """Build the controllers of the process, and of the clouds that are connected by now."""
        several = self._context.clouds is not None
        for context in (*((self._context,) if several else ()), *self._context.per_cloud):
            if context.scope.name in self._built:
                continue
            self._built.add(context.scope.name)
            for descriptor in context.here():
                built = context.build(descriptor)
                if isinstance(built, BuiltController):
                    self._previews[built.name] = built.controller.preview
                elif built.is_news:
                    self._skipped[context.scope.scoped(descriptor.names.canonical)] = built.why

    async def _assigned(self, scope: Scope) -> Mapping[str, tuple[PlanLine, ...] | str]:
        """Assigns nodes and Services to clouds, if there are several; previews depend on it."""
        clouds = self._context.clouds
        return {ASSIGNMENT: await _ask(ASSIGNMENT, clouds.preview, scope)} if clouds else {}

    def _unconnected(self) -> Mapping[str, str]:
        slots = self._context.clouds.slots if self._context.clouds else ()
        return {f"cloud {slot.name}": problem for slot in slots if (problem := slot.problem())}


def without_aftermath(lines: Iterable[PlanLine]) -> tuple[PlanLine, ...]:
    """Returns the lines without troubles that only follow from another one of the same object."""
    lines = tuple(lines)
    troubles = [it.line for it in lines if isinstance(it.line, Trouble)]
    causes = {title(trouble.about) for trouble in troubles if not trouble.is_aftermath}
    return tuple(it for it in lines if not _is_aftermath(it.line, causes))


def _is_aftermath(line: Planned | Trouble, causes: Container[str]) -> bool:
    return isinstance(line, Trouble) and line.is_aftermath and title(line.about) in causes


async def _ask(name: str, preview: Preview, scope: Scope) -> tuple[PlanLine, ...] | str:
    try:
        async with asyncio.timeout(LONGEST):
            return tuple(PlanLine(name, line) for line in await preview(scope))
    except (CloudError, KubeError) as error:
        return str(error) or type(error).__name__
    except TimeoutError:
        return f"no answer within {LONGEST:.0f} s; see the log for what it waits for"
    except Exception as error:
        log.exception("Preview failed", error=error, controller=name)
        return f"internal error {type(error).__name__} (see the log)"


@asynccontextmanager
async def failing_if_unreadable(context: ManagerContext) -> AsyncGenerator[None]:
    """Raises Fatal in the block if an informer cannot list its objects."""
    async with background(_watch(context)):
        yield


async def _watch(context: ManagerContext) -> None:
    loop = asyncio.get_running_loop()
    seen = loop.time()
    while True:
        trouble = context.informers.blindness()
        if trouble is None:
            seen = loop.time()
        elif trouble.is_lasting or loop.time() - seen > PATIENCE:
            raise Fatal(trouble.text)
        await asyncio.sleep(CHECK_INTERVAL)
