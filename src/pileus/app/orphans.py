"""Load balancers that carry this cluster's mark and have no Service: found, shown, and deleted.

    owners by mark ──▶ a fresh list of all Services ──▶ who has none ──▶ what is there for them

The marks are read first: whoever has none by then, and gets a balancer a moment later, has a
Service by the time that the Services are listed. What belongs to a Service of a class that others
serve is shown too, as the manager reports it, but never deleted: perhaps only a flag is missing.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pileus.app.context import ManagerContext
from pileus.app.controller_settings import settings_of
from pileus.app.errors import CommandFailed
from pileus.cloud.balancer import Balancer, Change, Owner, Wish
from pileus.cloud.errors import CloudError
from pileus.controllers.service.annotations import class_of
from pileus.controllers.service.descriptor import DESCRIPTOR, served_classes
from pileus.controllers.service.events import about_service
from pileus.controllers.service.observation import BalancerOperations
from pileus.controllers.service.orphans import unwanted
from pileus.deadline import Deadline
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import SERVICES, Service
from pileus.objects.preview import title

BLIND = (
    "this provider cannot say which load balancers it has made: it is a ported one, and knows only "
    "those of its own process. Look for leftovers in the cloud's own console"
)
PATIENCE = 300.0
"""Seconds for one balancer to go."""
PAUSE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """What is marked with one owner that is not there any more, or not ours to serve."""

    owner: Owner
    service: str = ""
    """Who and what the owner is, if it is there after all: then it is not deleted."""
    balancer: Balancer | None = None
    changes: tuple[Change, ...] = ()
    """What its deletion would do."""
    trouble: str = ""
    """Why nothing can be said of it."""


@dataclass(frozen=True, slots=True)
class OrphanReport:
    cluster: str
    owners: int
    """How many are marked as this cluster's, those with a Service included."""
    orphans: tuple[Orphan, ...]

    @property
    def deletable(self) -> tuple[Orphan, ...]:
        """Those whose owner is gone."""
        return tuple(each for each in self.orphans if not each.service)


async def find_orphans(context: ManagerContext) -> OrphanReport:
    """Errors: `CommandFailed`, if it cannot be known who has none."""
    operations, client = _operations(context), context.clients.main("orphans")
    try:
        cluster = await context.cluster_identity.find(wait=False)
        owners = await operations.owners(cluster)
        listed = await client.list(SERVICES)
    except (CloudError, KubeError) as error:
        raise CommandFailed(f"orphans cannot be told from others: {error}") from error
    classes = served_classes(context.scope, settings_of(context.config, DESCRIPTOR))
    ours = [owner.uid for owner in owners if owner.cluster == cluster]
    services = {each.metadata.uid: each for each in (*listed.items, *listed.unreadable)}
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_seen(operations, Owner(cluster, uid), _described(services.get(uid))))
            for uid in sorted(unwanted(ours, services.values(), classes))
        ]
    return OrphanReport(cluster, len(owners), tuple(task.result() for task in tasks))


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
    """Delete those that were shown, if they are still as they were shown.

    Who they are is found out anew, by marks and a fresh list. The answer names those that are not
    gone, and why. Errors: those of `find_orphans`.
    """
    before = {orphan.owner: orphan for orphan in shown}
    now = {orphan.owner: orphan for orphan in (await find_orphans(context)).orphans}
    operations = _operations(context)
    failed: dict[Owner, str] = {}
    for owner, orphan in before.items():
        if owner in now and (problem := await _delete(operations, orphan, now[owner])):
            failed[owner] = problem
    return failed


async def _delete(operations: BalancerOperations, shown: Orphan, now: Orphan) -> str:
    """Why it is not gone; nothing, if it is."""
    if now.service:
        return f"{now.service}, is there"
    if now.trouble:
        return now.trouble
    if now.changes != shown.changes:
        return "it has changed since it was shown; look again"
    try:
        async with Deadline(PATIENCE):
            await _perform(operations, now.owner)
    except CloudError as error:
        return str(error)
    except TimeoutError:
        return f"it is still being deleted after {PATIENCE:.0f} s; look again later"
    return ""


async def _perform(operations: BalancerOperations, owner: Owner) -> None:
    """Change what there is to change until nothing is left of it."""
    while True:
        found = await operations.check(Wish(owner=owner, spec=None), full=True)
        if found.changes:
            _, found = await operations.apply(found, found.changes)
        if found.balancer is None and not found.changes:
            return
        await asyncio.sleep((found.balancer and found.balancer.check_again_in) or PAUSE)
