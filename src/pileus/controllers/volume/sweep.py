"""The periodic check of all volumes: missing ones, lost attachments, orphans, running sidecars.

    volumes of the cloud, objects of the cluster ──plan_sweep──▶ suspicions ──▶ passes, events

A pass checks a suspected volume again before it reports it; an orphan is reported after a second
check. Orphans are reported and never deleted: a volume without a
PersistentVolume may be one whose data someone wanted to keep.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from pileus.clock import Clock
from pileus.cloud.volume import Volume, VolumeId, Volumes
from pileus.controllers.volume.cluster import Cluster
from pileus.controllers.volume.objects import (
    NODE_ID,
    Rules,
    annotation,
    handle_of,
    is_attached,
    is_deleting,
    source_volume,
    volume_name,
)
from pileus.kube.client import Client, Selector
from pileus.kube.errors import KubeError, Unreadable
from pileus.kube.model.coordination_v1 import LEASES
from pileus.kube.model.core_v1 import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from pileus.kube.model.storage_v1 import VolumeAttachment
from pileus.objects.events import ObjectEvents
from pileus.telemetry.log import Log
from pileus.volumes.sidecars import sidecar_leases

log = Log(__name__)

ROUND = "volume-check"
GRACE = 60.0
"""Seconds between the first and the second check, before a suspicion counts."""
SHOWN = 5
KUBE_SYSTEM = ObjectReference(api_version="v1", kind="Namespace", name="kube-system")
ORPHANED = "OrphanedVolumes"
SIDECAR = "VolumeSidecarRunning"
ALIVE = timedelta(seconds=60)
"""A Lease that was renewed within this time belongs to a running process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What the check of all volumes is planned from."""

    rules: Rules
    volumes: Mapping[VolumeId, Volume]
    """All volumes of the cluster in the cloud."""
    pvs: tuple[PersistentVolume, ...]
    claims: tuple[PersistentVolumeClaim, ...]
    attachments: tuple[VolumeAttachment, ...]


@dataclass(frozen=True, slots=True)
class Suspected:
    names: frozenset[str]
    """PersistentVolumes whose volume is missing, or attached otherwise than it should be."""
    orphans: frozenset[VolumeId]
    """Volumes without PersistentVolume and claim."""


def plan_sweep(sweep: Sweep) -> Suspected:
    """Returns what differs between cluster and cloud. Pure."""
    ours = [each for each in sweep.pvs if sweep.rules.is_ours(each)]
    missing = {
        each.metadata.name
        for each in ours
        if VolumeId(handle_of(each)) not in sweep.volumes and not is_deleting(each)
    }
    by_name = {each.metadata.name: each for each in ours}
    lost = {
        source_volume(each)
        for each in sweep.attachments
        if sweep.rules.is_attacher(each) and _is_lost(sweep, by_name, each)
    }
    machines: dict[str, set[str]] = {}
    for each in sweep.attachments:
        machines.setdefault(source_volume(each), set()).add(annotation(each, NODE_ID))
    stray = {name for name, each in by_name.items() if _has_stray(sweep, each, machines)}
    return Suspected(
        frozenset(missing | lost | stray), orphans(sweep.rules, sweep.volumes, ours, sweep.claims)
    )


def _has_stray(
    sweep: Sweep, pv: PersistentVolume, machines: Mapping[str, AbstractSet[str]]
) -> bool:
    """Returns whether the volume is attached to a machine for which there is no attachment.

    `machines` has those of all attachments, by PersistentVolume.
    """
    volume = sweep.volumes.get(VolumeId(handle_of(pv)))
    known = machines.get(pv.metadata.name, frozenset())
    return volume is not None and any(one.instance not in known for one in volume.attachments)


def _is_lost(
    sweep: Sweep, pvs: Mapping[str, PersistentVolume], attachment: VolumeAttachment
) -> bool:
    pv = pvs.get(source_volume(attachment))
    if pv is None or not is_attached(attachment) or is_deleting(attachment):
        return False
    volume = sweep.volumes.get(VolumeId(handle_of(pv)))
    if volume is None:
        return False
    return annotation(attachment, NODE_ID) not in {one.instance for one in volume.attachments}


def orphans(
    rules: Rules,
    volumes: Mapping[VolumeId, Volume],
    pvs: Iterable[PersistentVolume],
    claims: Iterable[PersistentVolumeClaim],
) -> frozenset[VolumeId]:
    """Returns the volumes with the cluster's mark that have neither PersistentVolume nor claim."""
    used = {handle_of(each) for each in pvs if rules.is_ours(each)}
    owners = {volume_name(each) for each in claims}
    return frozenset(
        id_
        for id_, each in volumes.items()
        if each.owner is not None and id_ not in used and each.owner.uid not in owners
    )


class Sweeper:
    """Performs the checks. A round of its own, beside the passes."""

    def __init__(
        self,
        rules: Rules,
        cluster: Cluster,
        volumes: Volumes,
        suspect: Callable[[str], None],
        notices: ObjectEvents,
    ) -> None:
        """`suspect` is called with the name of each PersistentVolume to be checked."""
        self._rules = rules
        self._cluster = cluster
        self._volumes = volumes
        self._suspect = suspect
        self._notices = notices
        self._first_seen: dict[VolumeId, float] = {}
        self._reported = frozenset[VolumeId]()
        self.missing = 0
        """The number of PersistentVolumes that differ from the cloud."""

    @property
    def orphans(self) -> int:
        """The number of volumes without PersistentVolume and claim."""
        return len(self._reported)

    async def sweep(self, random: Random, period: float) -> float:
        """Check all volumes once. Returns the seconds until the next check.

        The cloud is read before the cluster: what is created in between is in the later list.
        """
        volumes = await self._volumes.list_volumes(self._rules.cluster)
        found = plan_sweep(
            Sweep(
                rules=self._rules,
                volumes=volumes,
                pvs=self._cluster.volumes.list(),
                claims=self._cluster.claims.list(),
                attachments=self._cluster.attachments.list(),
            )
        )
        self.missing = len(found.names)
        for name in sorted(found.names):
            self._suspect(name)
        now = asyncio.get_running_loop().time()
        seen = self._first_seen
        self._first_seen = {id_: seen.get(id_, now) for id_ in found.orphans}
        due = {id_ for id_, since in self._first_seen.items() if now - since >= GRACE}
        self._report(frozenset(due))
        soon = self._first_seen.keys() - due
        return min(GRACE, period) if soon else period * random.uniform(1.0, 1.2)

    def _report(self, due: frozenset[VolumeId]) -> None:
        if not due or not due <= self._reported:
            self._notices.forget(KUBE_SYSTEM, ORPHANED)
        self._reported = due
        if not due:
            return
        names = ", ".join(sorted(due)[:SHOWN])
        more = f" and {len(due) - SHOWN} more" if len(due) > SHOWN else ""
        log.warning("Found orphaned volumes", count=len(due), volumes=names + more)
        text = (
            f"Volumes tagged with this cluster have no PersistentVolume and no claim: {names}{more}"
            ". They are kept (see pileus orphans)"
        )
        self._notices.warn(KUBE_SYSTEM, ORPHANED, text)


async def running_sidecars(client: Client, driver: str, now: datetime) -> tuple[str, ...]:
    """Returns the sidecars of the driver that hold a Lease now. Raises KubeError."""
    found: list[str] = []
    for lease, sidecar in sidecar_leases(driver).items():
        listed = await client.list(LEASES, selector=Selector(fields=f"metadata.name={lease}"))
        for each in listed.items:
            renewed = each.spec.renew_time if each.spec else None
            if renewed is not None and now - renewed < ALIVE:
                found.append(f"{sidecar} (Lease {each.metadata.namespace}/{lease})")
    return tuple(found)


class SidecarCheck:
    """Reports sidecars that do the same work: both act on the same objects."""

    def __init__(self, client: Client, driver: str, notices: ObjectEvents, clock: Clock) -> None:
        self._client = client
        self._driver = driver
        self._notices = notices
        self._clock = clock

    async def check(self) -> None:
        """Warn if a sidecar of this driver runs. A failed read is logged."""
        try:
            found = await running_sidecars(self._client, self._driver, self._clock.now())
        except KubeError as error:
            log.warning("Cannot read the Leases of CSI sidecars", err=error)
            return
        if not found:
            self._notices.forget(KUBE_SYSTEM, SIDECAR)
            return
        names = ", ".join(found)
        log.warning("CSI sidecars do the work of the volume controller too", sidecars=names)
        text = (
            f"The volume controller runs beside {names} of driver {self._driver}. Fix: remove the "
            "sidecars, or start the manager without volume-controller in --controllers"
        )
        self._notices.warn(KUBE_SYSTEM, SIDECAR, text)


async def fresh_orphans(client: Client, rules: Rules, volumes: Volumes) -> tuple[Volume, ...]:
    """Returns the volumes of the cluster that are orphans, by fresh lists.

    Without volumes in the cloud, the cluster is not asked: it may be one whose rights, like those
    of the Go manager, do not include PersistentVolumes. Raises CloudError or KubeError if a list is
    not complete.
    """
    found = await volumes.list_volumes(rules.cluster)
    if not found:
        return ()
    pvs = await client.list(PERSISTENT_VOLUMES)
    claims = await client.list(PERSISTENT_VOLUME_CLAIMS)
    if pvs.unreadable:
        name = pvs.unreadable[0].metadata.name
        raise Unreadable(f"PersistentVolume {name} is not readable, so its volume is unknown")
    listed = orphans(rules, found, pvs.items, (*claims.items, *claims.unreadable))
    return tuple(found[id_] for id_ in sorted(listed))
