"""`pileus orphans`: finds and deletes load balancers of this cluster that have no Service.

    owners by tag ──▶ a fresh list of all Services ──▶ owners without one ──▶ their load balancers

Tags are read first: a load balancer that is created in between has its Service in the later list.
Load balancers of Services with a class that is not served here are listed, but never deleted:
a missing flag may be the reason.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pileus.app.context import ManagerContext
from pileus.app.errors import CommandFailed
from pileus.cloud.balancer import Balancer, Change, Owner, Wish
from pileus.cloud.errors import CloudError
from pileus.controllers.service.annotations import class_of
from pileus.controllers.service.descriptor import served_classes
from pileus.controllers.service.events import about_service
from pileus.controllers.service.observation import BalancerOperations
from pileus.controllers.service.orphans import unwanted
from pileus.controllers.service.settings import ServiceSettings
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
class OrphanReport:
    cluster: str
    owners: int
    """How many are tagged with this cluster, those with a Service included."""
    orphans: tuple[Orphan, ...]
    problems: tuple[str, ...] = ()
    """Clouds that could not be searched, and why."""

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
        tuple(problems),
    )


async def _find(context: ManagerContext) -> OrphanReport:
    """Finds the orphans in one cloud."""
    operations, client = _operations(context), context.clients.main("orphans")
    try:
        cluster = await context.cluster_identity.find(wait=False)
        owners = await operations.owners(cluster)
        listed = await client.list(SERVICES)
    except (CloudError, KubeError) as error:
        raise CommandFailed(f"orphans cannot be identified: {error}") from error
    classes = served_classes(context.scope, context.config[ServiceSettings])
    ours = [owner.uid for owner in owners if owner.cluster == cluster]
    services = {each.metadata.uid: each for each in (*listed.items, *listed.unreadable)}
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_seen(operations, Owner(cluster, uid), _described(services.get(uid))))
            for uid in sorted(unwanted(ours, services.values(), classes))
        ]
    cloud = "" if context.scope.is_only else context.scope.name
    orphans = tuple(replace(task.result(), cloud=cloud) for task in tasks)
    return OrphanReport(cluster, len(owners), orphans)


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
    return BalancerOperations(context.cloud.balancers)


async def _seen(operations: BalancerOperations, owner: Owner, service: str) -> Orphan:
    try:
        found = await operations.check(Wish(owner=owner, spec=None), full=True)
    except CloudError as error:
        return Orphan(owner=owner, service=service, trouble=str(error))
    return Orphan(owner=owner, service=service, balancer=found.balancer, changes=found.changes)


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
        problem = await _delete(_operations(clouds[orphan.cloud]), orphan, current)
        if problem:
            failed[orphan.owner] = problem
    return failed


async def _delete(operations: BalancerOperations, shown: Orphan, now: Orphan) -> str:
    """Returns why it was not deleted; "" if it was."""
    if now.service:
        return f"its Service exists: {now.service}"
    if now.trouble:
        return now.trouble
    if now.changes != shown.changes:
        return "it has changed since it was shown; run pileus orphans again"
    try:
        async with Deadline(PATIENCE):
            await _perform(operations, now.owner)
    except CloudError as error:
        return str(error)
    except TimeoutError:
        return f"it is still being deleted after {PATIENCE:.0f} s; run pileus orphans again later"
    return ""


async def _perform(operations: BalancerOperations, owner: Owner) -> None:
    """Apply changes until nothing is left."""
    while True:
        found = await operations.check(Wish(owner=owner, spec=None), full=True)
        if found.changes:
            _, found = await operations.apply(found, found.changes)
        if found.balancer is None and not found.changes:
            return
        await asyncio.sleep((found.balancer and found.balancer.check_again_in) or PAUSE)
