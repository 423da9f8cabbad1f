"""Asks the selected clouds for the doctor. Nothing is changed."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from pileus.app.errors import CommandFailed, Fatal
from pileus.app.startup import World, choose_provider
from pileus.cloud.choice import CloudChoice, CloudSettings
from pileus.cloud.connection import connected
from pileus.cloud.errors import CloudError
from pileus.cloud.finding import Finding, Severity
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import read_only
from pileus.cloud.model import Absent
from pileus.cloud.volume import VolumeId, Volumes
from pileus.controllers.volume.objects import RELEASED
from pileus.dataclass import dataclass
from pileus.doctor.observation import CloudState
from pileus.doctor.part import PATIENCE
from pileus.doctor.records import Node
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.objects.nodes import is_ready, provider_id_of, reference
from pileus.settings.config import Config
from pileus.telemetry.log import Log
from pileus.volumes.parameters import driver_name

log = Log(__name__)

SAMPLE = 5
"""Nodes, and volumes without the mark of the cluster, that each cloud is asked about."""
SETTLED = timedelta(minutes=5)
"""Age of PersistentVolumes whose volumes are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What the clouds are asked about."""

    nodes: tuple[Node, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    cluster: str = ""
    """ID of the cluster; empty: it is not known, and volumes are not looked for."""
    now: datetime


def selected_clouds(config: Config) -> tuple[CloudChoice, ...]:
    return tuple(choice for choice in config[CloudSettings].clouds if choice.provider)


async def observe_clouds(config: Config, world: World, sought: Sought) -> tuple[CloudState, ...]:
    """Connects to each selected cloud; asks it about nodes and volumes, and for its own checks."""
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(_cloud(config, world, choice, sought))
            for choice in selected_clouds(config)
        ]
    return tuple(task.result() for task in asked)


async def _cloud(config: Config, world: World, choice: CloudChoice, sought: Sought) -> CloudState:
    state = CloudState(name=choice.name)
    try:
        connect, given = choose_provider(config, world, choice)
        async with asyncio.timeout(PATIENCE), connected(choice.name, connect, given) as cloud:
            state = replace(state, scheme=cloud.name)
            state = await _asked(state, read_only(cloud), sought.nodes)
            return await _with_volumes(state, read_only(cloud), sought)
    except (CloudError, CommandFailed, Fatal) as error:
        return replace(state, problem=str(error) or type(error).__name__)
    except TimeoutError:
        return replace(state, problem=f"no answer within {PATIENCE:.0f} s")


async def _asked(state: CloudState, cloud: Cloud, nodes: Iterable[Node]) -> CloudState:
    """Asks one cloud. Failing lookups do not hide what its own checks find, nor the reverse."""
    sample = [
        each
        for each in nodes
        if is_ready(each) and provider_id_of(each).startswith(f"{cloud.name}://")
    ][:SAMPLE]
    state = replace(
        state,
        has_cluster_id=cloud.has_cluster_id,
        has_checks=cloud.checks is not None,
        findings=await _own_findings(cloud),
        asked=len(sample),
    )
    try:
        return replace(state, absent=await _absent(cloud, sample))
    except Exception as error:
        if not isinstance(error, CloudError):
            log.exception("Lookup of nodes failed", error=error, cloud=cloud.name)
        return replace(state, problem=f"nodes cannot be looked up: {described(error)}")


async def _absent(cloud: Cloud, sample: Sequence[Node]) -> frozenset[str]:
    """Returns which of these nodes the cloud does not have."""
    if not sample or cloud.instances is None:
        return frozenset()
    answers = await cloud.instances.find([reference(each) for each in sample], fresh=True)
    return frozenset(str(name) for name, it in answers.items() if isinstance(it, Absent))


async def _with_volumes(state: CloudState, cloud: Cloud, sought: Sought) -> CloudState:
    """Looks for the volumes of PersistentVolumes; a failure hides nothing else."""
    drivers = {driver_name(state.name), driver_name(cloud.name)}
    handles = {
        VolumeId(each.spec.csi.volume_handle): each.metadata.name
        for each in sought.volumes
        if each.spec and each.spec.csi and each.spec.csi.driver in drivers
        if _is_settled(each, sought.now)
    }
    if not handles or not sought.cluster or cloud.volumes is None:
        return state
    try:
        missing = await _missing(cloud.volumes, sought.cluster, handles)
    except Exception as error:
        if not isinstance(error, CloudError):
            log.exception("Listing of volumes failed", error=error, cloud=cloud.name)
        return replace(state, volume_problem=described(error))
    return replace(state, missing_volumes=missing)


def _is_settled(volume: PersistentVolume, now: datetime) -> bool:
    """Returns whether the PersistentVolume is neither new nor about to be deleted."""
    meta, phase = volume.metadata, volume.status.phase if volume.status else ""
    created = meta.creation_timestamp
    is_old = created is not None and now - created > SETTLED
    return is_old and meta.deletion_timestamp is None and phase != RELEASED


async def _missing(
    volumes: Volumes, cluster: str, handles: Mapping[VolumeId, str]
) -> frozenset[str]:
    """Returns the PersistentVolumes whose volume the cloud does not have.

    A volume without the mark of the cluster, which an administrator brought, is listed only by its
    ID: some are looked up, and the others do not count as missing.
    """
    listed = await volumes.list_volumes(cluster)
    rest = sorted(handles.keys() - listed.keys())[:SAMPLE]
    if not rest:
        return frozenset()
    found = await volumes.list_volumes(cluster, rest)
    return frozenset(handles[id_] for id_ in rest if id_ not in found)


async def _own_findings(cloud: Cloud) -> tuple[Finding, ...]:
    if cloud.checks is None:
        return ()
    try:
        return tuple(await cloud.checks())
    except Exception as error:
        if not isinstance(error, CloudError):
            log.exception("Checks of the provider failed", error=error, cloud=cloud.name)
        return (
            Finding(
                id="cloud-checks-failed",
                severity=Severity.ERROR,
                subject=f"cloud {cloud.name}",
                what=f"its own checks failed: {described(error)}",
                reason="roles, quotas and services were not checked",
                fix="fix what the message names, then: pileus doctor",
            ),
        )


def described(error: Exception) -> str:
    """Returns the message; for an unexpected error with its type."""
    if isinstance(error, CloudError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
