"""Checks plans: a manager does what `pileus plan` announced just before, and nothing else."""

import asyncio
import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from pileus.app.plan import Plan, Planner, read_only_context
from pileus.cloud.balancer import Balancers, Change, Effect, Owner, Part, Seen, Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud, Routes, SshKeys
from pileus.cloud.model import Failure, NodeKeys, NodeName, NodeRef, Route, SshKey
from pileus.controllers.route.ownership import destination_of
from pileus.controllers.route.plan import CONDITION as ROUTED
from pileus.controllers.service.annotations import ENSURED, WRITTEN
from pileus.controllers.service.lines import BUSY, BY_CLOUD, LONG
from pileus.controllers.service.status import CONDITION as READY
from pileus.objects.preview import EVERYTHING, Place, Planned, Scope
from pileus.settings.go_quote import quote
from pileus_lab.apiserver.tree import Obj, branch, rows, text, texts, words
from pileus_lab.simulation.clouds.truth import Balancer
from pileus_lab.simulation.environment.steps import (
    Answer,
    Call,
    Channel,
    CloudStep,
    ObjectStep,
    Step,
)
from pileus_lab.simulation.invariants.service_history import is_manager
from pileus_lab.simulation.scenario import SCENARIOS
from pileus_lab.simulation.schedule import stream
from pileus_lab.simulation.world import World

ARROW = " → "
KINDS = {"nodes": "Node", "services": "Service"}


@dataclass(frozen=True, slots=True, order=True)
class Write:
    """One change of one object, or in the cloud for it."""

    about: str
    """`Node NAME` or `Service UID`."""
    place: Place
    what: str
    """In the cloud, the sign and summary of the change; in the cluster, the path of the field."""
    value: str = ""
    """In the cluster, the new value of the field."""

    def __str__(self) -> str:
        return f"{self.about}: {self.place} {self.what}{': ' if self.value else ''}{self.value}"


def promised(change: Planned) -> Iterator[Write]:
    """Yields the writes that a line of a plan announces."""
    kind, place = change.about.kind, change.place
    about = f"{kind} {change.about.uid if kind == 'Service' else change.about.name}"
    if place is Place.CLUSTER and change.effect is Effect.DELETE:
        yield Write(about, place, Effect.DELETE)
    elif place is Place.CLUSTER or change.summary.startswith("SSH keys"):
        sign = f"{change.effect} " if place is Place.CLOUD else ""
        for detail in change.details:
            path, _, values = detail.partition(": ")
            yield Write(about, place, f"{sign}{path}", values.rpartition(ARROW)[2])
    else:
        yield Write(about, place, f"{change.effect} {change.summary}")


def recorded(
    cloud: Cloud, told: Callable[[Write], None], noting: "Noting", whole: Callable[[Write], None]
) -> Cloud:
    """Returns the same cloud; `told` is called before every write.

    Changes of `Part.RECORD` are made within the context that `noting` returns instead: plans do
    not name them. `whole` is called before changes of more than members, too.
    """
    return replace(
        cloud,
        balancers=cloud.balancers and RecordedBalancers(cloud.balancers, told, noting, whole),
        routes=cloud.routes and RecordedRoutes(cloud.routes, told),
        ssh_keys=cloud.ssh_keys and RecordedKeys(cloud.ssh_keys, told),
    )


Noting = Callable[[Write], AbstractContextManager[None]]


class RecordedBalancers:
    """`apply` does not name the owner; the `changes` call before it does."""

    def __init__(
        self,
        inner: Balancers[Any, Any],
        told: Callable[[Write], None],
        noting: Noting,
        whole: Callable[[Write], None],
    ) -> None:
        self._inner = inner
        self._told = told
        self._noting = noting
        self._whole = whole
        self._owners: dict[int, tuple[Seen, Owner]] = {}

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self._inner.owners(cluster)

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        return await self._inner.observe(wishes, deep=deep)

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        self._owners[id(seen)] = seen, wish.owner
        return self._inner.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        _, owner = self._owners[id(seen)]
        write = Write(f"Service {owner.uid}", Place.CLOUD, f"{change.effect} {change.summary}")
        after: Seen
        if change.part is Part.RECORD:
            with self._noting(write):
                after = await self._inner.apply(change, seen)
        else:
            self._told(write)
            if change.part is Part.WHOLE:
                self._whole(write)
            after = await self._inner.apply(change, seen)
        self._owners[id(after)] = after, owner
        return after

    def lock_key(self, wish: Wish) -> str:
        return self._inner.lock_key(wish)


@dataclass(frozen=True, slots=True)
class RecordedRoutes:
    inner: Routes
    told: Callable[[Write], None]

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        return await self.inner.list_routes(cluster)

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self._report(Effect.CREATE, routes)
        return await self.inner.create(cluster, routes)

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self._report(Effect.DELETE, routes)
        return await self.inner.delete(cluster, routes)

    def _report(self, effect: Effect, routes: Sequence[Route]) -> None:
        for route in routes:
            target = route.target or ""
            what = f"{effect} route {route.destination} to {target or 'an unknown machine'}"
            self.told(Write(f"Node {target}", Place.CLOUD, what))


@dataclass(frozen=True, slots=True)
class RecordedKeys:
    inner: SshKeys
    told: Callable[[Write], None]

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        return await self.inner.list_keys(cluster, nodes)

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        self._report(Effect.CREATE, keys, nodes)
        return await self.inner.add(cluster, keys, nodes)

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        self._report(Effect.DELETE, keys, nodes)
        return await self.inner.remove(cluster, keys, nodes)

    def _report(self, effect: Effect, keys: Sequence[SshKey], nodes: Sequence[NodeRef]) -> None:
        for node in nodes:
            for key in keys:
                what = f"{effect} {key.user}"
                self.told(Write(f"Node {node.name}", Place.CLOUD, what, key.fingerprint))


def differences(step: ObjectStep) -> Iterator[Write]:
    """Yields what a request changed on a node or Service, field by field."""
    before, after = step.before or {}, step.after
    kind = KINDS[step.resource]
    name = text(step.after or before, "metadata", "uid" if kind == "Service" else "name")
    about = f"{kind} {name}"
    if after is None or _is_leaving(after) > _is_leaving(before):
        if after is None and _is_leaving(before):
            yield from _changed(about, before, {})  # its last finalizer was removed
        else:
            yield Write(about, Place.CLUSTER, Effect.DELETE)
        return
    yield from _changed(about, before, after)


def _is_leaving(thing: Obj) -> bool:
    return bool(text(thing, "metadata", "deletionTimestamp"))


def _changed(about: str, before: Obj, after: Obj) -> Iterator[Write]:
    if not after:
        for one in texts(before, "metadata", "finalizers"):
            yield Write(about, Place.CLUSTER, "metadata.finalizers", f"without {one}")
        return
    old, new = dict(_fields(before)), dict(_fields(after))
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield Write(about, Place.CLUSTER, path, new.get(path, _nothing(path)))
    for path, entries in _SETS.items():
        gone, come = entries(before) - entries(after), entries(after) - entries(before)
        for one in sorted(gone):
            yield Write(about, Place.CLUSTER, path, f"without {one.partition(':')[0]}")
        for one in sorted(come):
            yield Write(about, Place.CLUSTER, path, f"with {one}")


def _nothing(path: str) -> str:
    return "removed" if path.startswith("metadata.") else "none"


def _fields(thing: Obj) -> Iterator[tuple[str, str]]:
    for group in ("labels", "annotations"):
        for key, value in words(thing, "metadata", group).items():
            yield f"metadata.{group}[{key}]", quote(value)
    if provider_id := text(thing, "spec", "providerID"):
        yield "spec.providerID", quote(provider_id)
    if ranges := texts(thing, "spec", "podCIDRs"):
        yield "spec.podCIDRs", f"[{', '.join(ranges)}]"
    addresses = rows(thing, "status", "addresses")
    if addresses:
        shown = (f"{text(one, 'type')} {text(one, 'address')}" for one in addresses)
        yield "status.addresses", ", ".join(shown)
    for one in rows(thing, "status", "conditions"):
        state = f"{quote(text(one, 'status'))} ({text(one, 'reason')})"
        yield f"status.conditions[{text(one, 'type')}]", state
    ingress = rows(branch(thing, "status", "loadBalancer"), "ingress")
    if ingress:
        shown = (text(one, "ip") or text(one, "hostname") for one in ingress)
        yield "status.loadBalancer.ingress", ", ".join(shown)


def _taints(thing: Obj) -> set[str]:
    return {f"{text(one, 'key')}:{text(one, 'effect')}" for one in rows(thing, "spec", "taints")}


def _finalizers(thing: Obj) -> set[str]:
    return {*texts(thing, "metadata", "finalizers")}


_SETS: Mapping[str, Callable[[Obj], set[str]]] = {
    "spec.taints": _taints,
    "metadata.finalizers": _finalizers,
}


HOUR = 3600.0
REST = 400.0
"""Seconds between the last event and the plan: by then no machine boots, no balancer is pending
and no kubelet is about to be declared dead."""
SETTLED = 900.0
"""Seconds after which managers that were never stopped have done everything."""
WORD = 0.05
"""Seconds in which a change reaches every watch."""
HANDED_OVER = (0.4, 0.6, 0.8, None)
"""The same for managers whose balancers are made those of another manager."""
STOPS = (0.0, 0.4, 0.6, 0.7, 0.8, 0.9, None)
"""When managers are stopped, as a fraction of the active time; None: afterwards."""

EMPTY = "an_empty_plan_means_no_write"
PLANNED = "every_write_was_planned"
TRIED = "what_is_planned_is_tried"
READS = "a_plan_writes_nothing"
RECORDS = "a_record_changes_nothing_else"
ADOPTED = "a_plan_of_adoption_is_complete"
LAWS = (EMPTY, PLANNED, TRIED, READS, RECORDS, ADOPTED)

_IS_RECORD: ContextVar[bool] = ContextVar("is_record", default=False)
"""Whether the current request belongs to a change of `Part.RECORD`."""

OUTCOMES = {
    "Service": (
        f"status.conditions[{READY}]",
        f"metadata.annotations[{ENSURED}]",
        f"metadata.annotations[{WRITTEN}]",
    ),
    "Node": (f"status.conditions[{ROUTED}]",),
}
"""The fields that report the result of a change in the cloud."""
ADDRESSES = "status.loadBalancer.ingress"
RANGES = "spec.podCIDRs"
"""A manager continues after the range that it assigned last, which no plan knows: only the first
plan names ranges, later ones announce some."""
ANY = "*"
UPDATE_OF_PORTED = re.compile(r"~ \d+ members of the (load balancer of .+)")


async def hold_to_plans(world: World) -> None:
    """Plays the world of a schedule and reports violations."""
    await _prepare(world)
    keeper = Keeper(world)
    world.judge.observers.append(keeper.see)
    for manager in world.managers:
        manager.watch_cloud = keeper.watching(manager.watch_cloud)
    async with keeper.planning():
        for manager in world.managers:
            manager.bring_up()
        await _an_hour(world)
        await keeper.finish()


async def _prepare(world: World) -> None:
    """Plays the events, with managers only at first, until nothing more happens by itself."""
    takes_over = SCENARIOS[world.schedule.scenario].takes_over
    stop = stream(world.schedule.seed, "plan").choice(HANDED_OVER if takes_over else STOPS)
    async with asyncio.TaskGroup() as group:
        if stop is not None:
            group.create_task(_stop_at(world, stop * world.schedule.seconds))
        await world.let_things_happen()
    world.end_faults(tidies=False)
    if stop is None:
        await asyncio.sleep(SETTLED)
    _stop(world)
    await asyncio.sleep(REST)
    if takes_over:
        world.hand_over()


async def _stop_at(world: World, moment: float) -> None:
    await asyncio.sleep(moment)
    _stop(world)


def _stop(world: World) -> None:
    for manager in world.managers:
        manager.keep_down()


async def _an_hour(world: World) -> None:
    for _ in range(60):
        await asyncio.sleep(HOUR / 60)
        if world.judge.violation is not None:
            return


class Keeper:
    """Makes plans whenever something has changed, and compares what managers do with them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._changed = asyncio.Event()
        self._ask: Callable[[Scope], Awaitable[Plan]] = _nobody
        self._first = Plan()
        self._promises: set[Write] = set()
        self._at_first: set[Write] = set()
        self._at_adoption: set[Write] = set()
        """What the first plan announced."""
        self._tried: set[Write] = set()
        self._is_busy = False
        self._reported: tuple[str, ...] = ()
        """The annotations that the provider reports with a new or changed balancer."""

    @asynccontextmanager
    async def planning(self) -> AsyncGenerator[None]:
        """Plans while the block lasts; the first plan is made before it."""
        replica = self._world.planner(self._hear)
        config, life = self._world.schedule.setup.config, replica.next_life()
        async with read_only_context(config, replica.surroundings(life)) as context:
            self._ask = Planner(context).plan
            declared = context.cloud.annotations
            names = sorted(declared.reported) if declared else ()
            self._reported = tuple(f"metadata.annotations[{name}]" for name in names)
            self._first = await self._plan()
            changes = [change for _, change in self._first.changes]
            self._at_adoption = {one for it in changes for one in promised(it)}
            self._at_first = {replace(one, value="") for it in changes for one in promised(it)}
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow())
                yield
                following.cancel()

    def watching(self, before: Callable[[Cloud], Cloud]) -> Callable[[Cloud], Cloud]:
        """Returns a wrapper of clouds that records writes, besides what `before` does."""
        return lambda cloud: recorded(before(cloud), self._write, self._noting, self._whole)

    def _whole(self, write: Write) -> None:
        """Called before a change of more than members.

        Of a balancer that was adopted, the first plan named all of them: it was made before the
        first start, and nothing but nodes, and so members, has changed since.
        """
        uid = write.about.removeprefix("Service ")
        found = self._world.account.truth().balancers.get(self._world.taken_over.get(uid, ""))
        is_adopted = found is not None and found.owner is not None and found.owner.uid == uid
        if is_adopted and write not in self._at_adoption:
            self._blame(ADOPTED, f"{write}: the plan before the adoption does not name it")

    @contextmanager
    def _noting(self, write: Write) -> Generator[None]:
        """Surrounds a change that no plan names: everything but the provider's record stays."""
        uid = write.about.removeprefix("Service ")
        before = self._without_records(uid)
        token = _IS_RECORD.set(True)
        try:
            yield
        finally:
            _IS_RECORD.reset(token)
        after = self._without_records(uid)
        if before != after:
            self._blame(RECORDS, f"{write} (Part.RECORD) changed {before} to {after}")

    def _without_records(self, uid: str) -> Mapping[str, Balancer]:
        """Returns the balancers of a Service without what providers record about them."""
        found = self._world.account.truth().balancers
        return {
            each: replace(one, record=None, is_noted=None)
            for each, one in found.items()
            if one.owner is not None and one.owner.uid == uid
        }

    def see(self, step: Step) -> None:
        """Called with every step of the world."""
        if isinstance(step, ObjectStep | CloudStep):
            if isinstance(step, ObjectStep) and is_manager(step.who):
                for write in differences(step):
                    self._write(write)
            if isinstance(step, ObjectStep) and step.resource == "nodes" and step.after is None:
                self._promise_routes_of(step.before or {})
            self._hold()
        elif isinstance(step, Call) and step.is_work:
            self._sent(step)
        elif isinstance(step, Call) and step.channel is Channel.CLOUD_READ and self._is_busy:
            self._hold()  # a balancer that is no longer pending may show what is left to change

    async def finish(self) -> None:
        """What was planned at first and still is, was tried."""
        last = {*_immediate(await self._plan())}
        for write in sorted(last & {*_immediate(self._first)} - self._tried):
            self._blame(TRIED, f"{write} was planned for an hour and never tried")

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            while self._changed.is_set():
                self._changed.clear()
                await asyncio.sleep(WORD)
            await self._plan()
            if not self._changed.is_set():
                self._resume()

    async def _plan(self) -> Plan:
        made = await self._ask(EVERYTHING)
        self._is_busy = any(change.waits_for in {BUSY, LONG} for _, change in made.changes)
        for controller, why in made.failures.items():
            self._blame(PLANNED, f"{controller} has no plan: {why}")
        for _, change in made.changes:
            for write in promised(change):
                self._promises |= {write, replace(write, value=ANY)}
            if change.place is Place.CLOUD:
                self._promise_outcome(change)
        return made

    def _promise_outcome(self, change: Planned) -> None:
        for write in promised(change):
            kind, _, _ = write.about.partition(" ")
            reported = self._reported if kind == "Service" else ()
            for path in (*OUTCOMES[kind], *reported):
                self._promises.add(Write(write.about, Place.CLUSTER, path, BY_CLOUD))
            if change.effect is Effect.UPDATE:
                self._promises.add(Write(write.about, Place.CLUSTER, ADDRESSES, BY_CLOUD))

    def _promise_routes_of(self, deleted: Obj) -> None:
        """A manager deletes the routes of a node whose deletion it saw.

        If the cloud does not say whose a route is, no later plan names it: a process that starts
        now cannot know the node.
        """
        name = text(deleted, "metadata", "name")
        ranges = {destination_of(each) for each in texts(deleted, "spec", "podCIDRs")}
        for route in self._world.account.truth().routes.values():
            if route.cluster is None and destination_of(route.destination) in ranges:
                what = f"{Effect.DELETE} route {route.destination} to {name}"
                self._promises.add(Write(f"Node {name}", Place.CLOUD, what))

    def _hold(self) -> None:
        self._changed.set()
        for manager in self._world.managers:
            if manager.life is not None:
                self._world.loop.pause(manager.life.process)

    def _resume(self) -> None:
        for manager in self._world.managers:
            if manager.life is not None:
                self._world.loop.resume(manager.life.process)

    def _sent(self, call: Call) -> None:
        if _IS_RECORD.get():
            return
        if not any(True for _ in self._first.changes):
            self._blame(EMPTY, f"{call.what}, though the plan was empty")
        elif call.channel is Channel.WRITE and not _is_known(call.what):
            self._blame(PLANNED, f"{call.what}: no plan names such objects")

    def _write(self, write: Write) -> None:
        self._tried.add(write)
        if write.what == Effect.DELETE:
            self._at_first.discard(replace(write, what=RANGES))  # its successor is another node
        unknown = replace(write, value=BY_CLOUD)
        if write.what == RANGES and replace(write, value="") not in self._at_first:
            unknown = replace(write, value=ANY)
        if self._promises.isdisjoint({write, unknown, *_ensures_after(write)}):
            self._blame(PLANNED, f"{write}; planned: {self._nearest(write)}")

    def _nearest(self, write: Write) -> str:
        same = sorted(str(one) for one in self._promises if one.about == write.about)
        return "; ".join(same) or "nothing for this object"

    def _hear(self, step: Call | Answer) -> None:
        if isinstance(step, Call) and (step.is_work or step.channel is Channel.EVENT):
            self._blame(READS, f"the planner sent {step.what}")

    def _blame(self, law: str, why: str) -> None:
        self._world.judge.blame(law, why)


async def _nobody(_: Scope) -> Plan:
    return Plan()


def _immediate(plan: Plan) -> Iterable[Write]:
    for _, change in plan.changes:
        if not change.waits_for:
            yield from promised(change)


def _ensures_after(write: Write) -> Iterator[Write]:
    """Yields the changes that announce an update of the members by a ported provider.

    If its last call failed and the members have changed since, a manager updates the members before
    it ensures the load balancer. A plan only names the ensure: which members the call that failed
    was given is known to the process that made it.
    """
    found = UPDATE_OF_PORTED.fullmatch(write.what)
    if found is not None and write.place is Place.CLOUD:
        for effect in (Effect.CREATE, Effect.UPDATE):
            yield replace(write, what=f"{effect} ensure the {found[1]}")


def _is_known(what: str) -> bool:
    return any(f"/{name}/" in what for name in ("nodes", "services"))
