"""`pileus orphans`: finds and deletes load balancers of this cluster that have no Service.

Volumes without PersistentVolume and claim are listed, too, and never deleted: their data may be
needed.

    owners by tag ──▶ a fresh list of all Services ──▶ owners without one ──▶ their load balancers

Tags are read first: a load balancer that is created in between has its Service in the later list.
Which load balancers are orphans, and the steps that delete one, are those of the orphan sweep.
Load balancers of Services with a class that is not served here are listed, but never deleted:
a missing flag may be the reason.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from pileus.app.context import ManagerContext
from pileus.app.errors import CommandFailed
from pileus.clock import Clock
from pileus.cloud.balancer import Balancer, Change, Owner
from pileus.cloud.errors import CloudError
from pileus.cloud.volume import Volume
from pileus.controllers.service.annotations import Classes, class_of
from pileus.controllers.service.descriptor import served_classes
from pileus.controllers.service.desired import Desires
from pileus.controllers.service.events import about_service
from pileus.controllers.service.observation import Applied, BalancerOperations, Observation
from pileus.controllers.service.orphans import ReportOrphans, Sweep, SweepSettings, plan_sweep
from pileus.controllers.service.plan import Rules
from pileus.controllers.service.preview import checked_plan, orphan_observation
from pileus.controllers.service.settings import ServiceSettings
from pileus.controllers.service.steps import ApplyChanges, CheckAgain, Forget, Plan, Report, Wait
from pileus.controllers.volume.objects import rules_of
from pileus.controllers.volume.sweep import fresh_orphans
from pileus.dataclass import dataclass
from pileus.deadline import Deadline
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import SERVICES, Service
from pileus.objects.preview import title

BLIND = (
    "orphans cannot be listed: this ported provider knows only the load balancers of its own "
    "process. Search for them in the cloud's console"
)
PATIENCE = 300.0
"""Seconds for the deletion of one load balancer."""
PAUSE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """The cloud resources of one owner that does not exist or is not served here."""

    owner: Owner
    service: str = ""
    """The owner, if it exists: then its load balancer is not deleted."""
    balancer: Balancer | None = None
    changes: tuple[Change, ...] = ()
    """The changes that would delete it."""
    trouble: str = ""
    """Why its load balancer is unknown."""
    cloud: str = ""
    """Its cloud, if the manager has several."""


@dataclass(frozen=True, slots=True)
class OrphanVolume:
    """A volume of the cluster that has neither PersistentVolume nor claim."""

    volume: Volume
    cloud: str = ""
    """Its cloud, if the manager has several."""


@dataclass(frozen=True, slots=True)
class OrphanReport:
    cluster: str
    owners: int
    """How many are tagged with this cluster, those with a Service included."""
    orphans: tuple[Orphan, ...]
    problems: tuple[str, ...] = ()
    """What could not be searched, and why."""
    volumes: tuple[OrphanVolume, ...] = ()

    @property
    def deletable(self) -> tuple[Orphan, ...]:
        """Orphans whose owner does not exist."""
        return tuple(each for each in self.orphans if not each.service)


async def find_orphans(context: ManagerContext) -> OrphanReport:
    """Finds orphans in every cloud. Raises CommandFailed if it cannot be known which have none.

    With several clouds, one that cannot be asked is reported and the others are searched.
    """
    if context.clouds is None:
        return await _find(context)
    problems = [problem for slot in context.clouds.slots if (problem := slot.problem())]
    found: list[OrphanReport] = []
    for each in context.clouds.contexts():
        try:
            found.append(await _find(each))
        except CommandFailed as error:
            problems.append(f"cloud {each.scope.name}: {error}")
    if not found:
        raise CommandFailed("; ".join(problems))
    return OrphanReport(
        found[0].cluster,
        sum(each.owners for each in found),
        tuple(orphan for each in found for orphan in each.orphans),
        (*problems, *(problem for each in found for problem in each.problems)),
        tuple(volume for each in found for volume in each.volumes),
    )


async def _find(context: ManagerContext) -> OrphanReport:
    """Finds the orphans in one cloud."""
    client = context.clients.main("orphans")
    try:
        clean_up = await _clean_up(context)
        owners = await clean_up.operations.owners(clean_up.cluster)
        listed = await client.list(SERVICES)
    except (CloudError, KubeError) as error:
        raise CommandFailed(f"orphans cannot be identified: {error}") from error
    services = {each.metadata.uid: each for each in (*listed.items, *listed.unreadable)}
    found = _orphans(owners, tuple(services.values()), clean_up.rules.classes)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(clean_up.seen(uid, _described(services.get(uid))))
            for uid in sorted(found)
        ]
    cloud = "" if context.scope.is_only else context.scope.name
    orphans = tuple(replace(task.result(), cloud=cloud) for task in tasks)
    report = OrphanReport(clean_up.cluster, len(owners), orphans)
    if context.cloud.volumes is None:
        return report
    rules = rules_of(context.scope.name, clean_up.cluster)
    try:
        volumes = await fresh_orphans(client, rules, context.cloud.volumes)
    except (CloudError, KubeError) as error:
        where = f"cloud {cloud}: " if cloud else ""
        return replace(report, problems=(f"{where}volumes cannot be searched: {error}",))
    return replace(report, volumes=tuple(OrphanVolume(each, cloud) for each in volumes))


def _orphans(
    owners: Collection[Owner], services: tuple[Service, ...], classes: Classes
) -> frozenset[str]:
    """Returns the UIDs that the orphan sweep would report."""
    sweep = Sweep(
        owners=frozenset(owner.uid for owner in owners),
        services=services,
        classes=classes,
        first_seen={},
        now=0.0,
        settings=SweepSettings(),
    )
    reports = (each for each in plan_sweep(sweep) if isinstance(each, ReportOrphans))
    return frozenset(uid for report in reports for uid in report.uids)


def _described(service: Service | None) -> str:
    if service is None:
        return ""
    named = f"of class {class_of(service)}" if class_of(service) else "without a class"
    return f"{title(about_service(service))}, {named}"


def _operations(context: ManagerContext) -> BalancerOperations:
    if context.cloud.balancers is None:
        raise CommandFailed("the cloud provider does not support load balancers")
    if not context.cloud.knows_leftovers:
        raise CommandFailed(BLIND)
    return BalancerOperations(context.cloud.balancers, annotations=context.cloud.annotations)


async def _clean_up(context: ManagerContext) -> "CleanUp":
    """Raises CloudError or KubeError if the cluster's ID is not known."""
    operations = _operations(context)
    desires = Desires(
        cluster=await context.cluster_identity.find(wait=False),
        annotations=context.cloud.annotations,
        abilities=context.cloud.abilities,
    )
    classes = served_classes(context.scope, context.config[ServiceSettings])
    return CleanUp(Rules(desires, classes), operations, context.clock)


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Plans and performs the deletion of orphans in one cloud, in the steps of a pass."""

    rules: Rules
    operations: BalancerOperations
    clock: Clock

    @property
    def cluster(self) -> str:
        return self.rules.desires.cluster

    async def seen(self, uid: str, service: str) -> Orphan:
        orphan = Orphan(owner=Owner(self.cluster, uid), service=service)
        try:
            seen, steps = await self._plan(orphan_observation(uid, self.clock))
        except CloudError as error:
            return replace(orphan, trouble=str(error))
        changes = tuple(
            change for step in steps if isinstance(step, ApplyChanges) for change in step.changes
        )
        found = seen.balancer and seen.balancer.balancer
        return replace(orphan, balancer=found, changes=changes)

    async def delete(self, uid: str) -> None:
        """Perform the steps until nothing is left. Raises CloudError."""
        seen = orphan_observation(uid, self.clock)
        while True:
            seen, steps = await self._plan(seen)
            match steps[0]:
                case ApplyChanges():
                    seen = await self._apply(seen, steps[0])
                case Wait(seconds) | CheckAgain(seconds):
                    await asyncio.sleep(PAUSE if seconds is None else seconds)
                    seen = orphan_observation(uid, self.clock)
                case Report(error):
                    raise error
                case Forget():
                    return
                case step:
                    raise RuntimeError(f"{type(step).__name__} is no step for an orphan")

    async def _plan(self, seen: Observation) -> tuple[Observation, Plan]:
        return await checked_plan(self.rules, self.operations, seen)

    async def _apply(self, seen: Observation, step: ApplyChanges) -> Observation:
        if seen.balancer is None:
            raise RuntimeError("changes are planned for a load balancer that was not checked")
        done, after = await self.operations.apply(seen.balancer, step.changes)
        before = seen.applied
        applied = Applied((*before.done, *done), step.changes, before.rounds + 1, step.attempt)
        return replace(seen, balancer=after, applied=applied)


async def delete_orphans(context: ManagerContext, shown: Collection[Orphan]) -> Mapping[Owner, str]:
    """Delete the orphans that were shown, if they have not changed since.

    They are identified again, by tags and a fresh list of Services. Returns those that could not be
    deleted, and why. Raises as `find_orphans`.
    """
    found = (await find_orphans(context)).orphans
    now = {(orphan.cloud, orphan.owner): orphan for orphan in found}
    clouds = {"" if one.scope.is_only else one.scope.name: one for one in context.per_cloud}
    failed: dict[Owner, str] = {}
    for orphan in shown:
        current = now.get((orphan.cloud, orphan.owner))
        if current is None:
            continue
        problem = await _delete(await _clean_up(clouds[orphan.cloud]), orphan, current)
        if problem:
            failed[orphan.owner] = problem
    return failed


async def _delete(clean_up: CleanUp, shown: Orphan, now: Orphan) -> str:
    """Returns why it was not deleted; "" if it was."""
    if now.service:
        return f"its Service exists: {now.service}"
    if now.trouble:
        return now.trouble
    if now.changes != shown.changes:
        return "it has changed since it was shown; run pileus orphans again"
    try:
        async with Deadline(PATIENCE):
            await clean_up.delete(now.owner.uid)
    except CloudError as error:
        return str(error)
    except TimeoutError:
        return f"it is still being deleted after {PATIENCE:.0f} s; run pileus orphans again later"
    return ""
