"""The PersistentVolume label controller: rounds over all PersistentVolumes that lack something.

One call to the cloud is enough for all of them. The webhook does the same before an object exists;
this controller is for objects that were created before, or while no webhook answered.
"""

from collections.abc import Sequence
from functools import partial
from typing import assert_never

from pileus.cloud.errors import CloudError
from pileus.cloud.volume import Volumes
from pileus.controllers.volume_labels.lines import ADDED, CONFLICT, NOT_FOUND, line
from pileus.controllers.volume_labels.lines import conflict as conflict_text
from pileus.controllers.volume_labels.lines import missing as missing_text
from pileus.controllers.volume_labels.plan import (
    KEYS,
    AddPlacement,
    ReportConflict,
    ReportMissing,
    Step,
    candidates,
    plan,
)
from pileus.kube.errors import Conflict, KubeError, NotFound
from pileus.kube.model.core_v1 import PERSISTENT_VOLUMES, ObjectReference, PersistentVolume
from pileus.kube.patch import MergePatch
from pileus.objects.decisions import record_observation, record_plan
from pileus.objects.descriptor import ControllerContext
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.periodic import Periodic, all_of
from pileus.telemetry.log import Log
from pileus.volumes.persistent_volumes import (
    CloudVolumes,
    about_volume,
    affinity_of,
    can_lack_placement,
)

log = Log(__name__)

ROUND = "VolumeLabels"
GATHER = 1.0
"""Seconds for which new objects are collected, so that they share one call to the cloud."""
CHECK_EVERY = 600.0
"""Seconds between two rounds without a change: a volume may appear in the cloud later."""
UNKNOWN = "VolumeUnknown"
EVERYTHING = ObjectReference(api_version="v1", kind="PersistentVolume")


class VolumeLabelController:
    """Gives the PersistentVolumes of one cloud zone, region and node affinity."""

    def __init__(self, context: ControllerContext, volumes: Volumes) -> None:
        scope = context.scope
        self._volumes = volumes
        self._cloud = CloudVolumes(scope.name, scope.cloud.volume_names)
        self._is_only = scope.is_only
        self._client = context.client
        self._cluster_id = context.cluster_id
        self._informer = context.informers.of(PERSISTENT_VOLUMES)
        self._events = ObjectEvents(context.events)
        self._round = Periodic(context.scoped(ROUND), self._work, context.metrics, context.random)

    async def run(self) -> None:
        """Works until cancelled, after the informer has synced. Call once."""
        await self._informer.wait_synced()
        self._informer.subscribe(_Changed(self._round, self._cloud))
        await self._round.run()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        await self._informer.wait_synced()
        try:
            steps = await self._steps()
        except (CloudError, KubeError) as error:
            lines: list[Planned | Trouble] = [Trouble(EVERYTHING, UNKNOWN, str(error))]
        else:
            lines = [line(step, self._cloud.cloud) for step in steps]
        return [each for each in lines if scope.has(each.about)]

    def stuck(self, limit: float) -> str | None:
        return self._round.stuck(limit)

    def failing(self) -> str | None:
        return self._round.failing()

    async def _work(self) -> float:
        """Returns the seconds until the next round."""
        steps = await self._steps()
        for step in steps:
            record_observation(about_volume(step.volume))
        record_plan(line(step, self._cloud.cloud) for step in steps)
        await all_of([partial(self._perform, step) for step in steps])
        return CHECK_EVERY

    async def _steps(self) -> tuple[Step, ...]:
        found = tuple(candidates(iter(self._informer.store.list()), self._cloud))
        if not found:
            return ()
        cluster = await self._cluster_id()
        seen = await self._volumes.list_volumes(cluster, list(dict.fromkeys(i for _, i in found)))
        return plan(found, seen, self._cloud, is_only=self._is_only)

    async def _perform(self, step: Step) -> None:
        about = about_volume(step.volume)
        match step:
            case AddPlacement():
                await self._add(step, about)
            case ReportConflict(_, conflicts):
                self._events.warn(about, CONFLICT, shortened(conflict_text(conflicts)))
            case ReportMissing(_, identified):
                text = missing_text(identified, self._cloud.cloud)
                self._events.warn(about, NOT_FOUND, shortened(text))
            case _:
                assert_never(step)

    async def _add(self, step: AddPlacement, about: ObjectReference) -> None:
        """Writes only if the object is still the one that was read: people may add labels too."""
        missing, metadata = step.missing, step.volume.metadata
        spec = {"nodeAffinity": affinity_of(missing.requirements)} if missing.requirements else {}
        labels = {"labels": dict(missing.labels)} if missing.labels else {}
        body = {
            "metadata": {"resourceVersion": metadata.resource_version, **labels},
            **({"spec": spec} if spec else {}),
        }
        try:
            await self._client.patch(PERSISTENT_VOLUMES, metadata.name, MergePatch(body))
        except (Conflict, NotFound) as error:  # the informer brings the new state
            log.info("PersistentVolume has changed meanwhile", volume=metadata.name, err=error)
            self._round.wake(GATHER)
            return
        log.info("Added zone and region to PersistentVolume", volume=metadata.name)
        text = ", ".join(f"{key}={value}" for key, value in sorted(missing.labels.items()))
        self._events.announce(about, ADDED, f"Added {text or 'the node affinity of the volume'}")


class _Changed:
    """Wakes the round for objects that may lack something."""

    def __init__(self, round_: Periodic, cloud: CloudVolumes) -> None:
        self._round = round_
        self._cloud = cloud

    def added(self, new: PersistentVolume, /) -> None:
        if self._cloud.id_of(new) is not None and can_lack_placement(new, KEYS):
            self._round.wake(GATHER)

    def updated(self, old: PersistentVolume, new: PersistentVolume, /) -> None:
        before = (old.metadata.labels, old.spec and old.spec.node_affinity)
        if before != (new.metadata.labels, new.spec and new.spec.node_affinity):
            self.added(new)

    def deleted(self, _: PersistentVolume, /) -> None:
        """There is nothing to do for a deleted object."""
