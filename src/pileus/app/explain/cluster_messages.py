"""Reads the events about an object, and the Lease of the manager."""

from datetime import datetime

from pileus.app.explain.explanation import Leader, Message
from pileus.kube.client import Client, Selector
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.coordination_v1 import LEASES
from pileus.kube.model.core_v1 import EVENTS, Event, ObjectReference
from pileus.runtime.settings import LeaderElectionSettings
from pileus.settings.config import Config

OURS = frozenset({
    "cloud-controller-manager",
    "cloud-node-controller",
    "cloud-node-lifecycle-controller",
    "service-controller",
    "route_controller",
    "cidrAllocator",
    "ssh-key-controller",
    "volume-controller",
    "persistentvolume-label-controller",
})
"""Sources of the events of a cloud-controller-manager, Pileus or the Go program."""
MOST = 5


async def warnings_about(
    client: Client, about: ObjectReference, *, from_others: bool = False
) -> tuple[Message, ...]:
    """Returns the newest warnings of a manager, or the error if they cannot be read.

    `from_others`: also those of other components, such as CSI sidecars.
    """
    chosen = f"involvedObject.kind={about.kind},involvedObject.name={about.name}"
    try:
        listed = await client.list(
            EVENTS, namespace=about.namespace or "default", selector=Selector(fields=chosen)
        )
    except KubeError as error:
        return (Message(source="events", reason="Unreadable", message=str(error)),)
    found = [
        each for each in listed.items if each.type == "Warning" and (from_others or _is_ours(each))
    ]
    found.sort(key=_moment, reverse=True)
    return tuple(
        Message(
            source="event",
            reason=each.reason,
            message=each.message,
            at=_time(each),
            count=max(each.count, 1),
        )
        for each in found[:MOST]
    )


async def leader(client: Client, config: Config, now: datetime) -> Leader | None:
    """Returns the holder of the manager's Lease; None if leader election is disabled."""
    wanted = config[LeaderElectionSettings]
    if not wanted.enabled:
        return None
    lock = f"{wanted.resource_namespace}/{wanted.resource_name}"
    try:
        lease = await client.get(LEASES, wanted.resource_name, namespace=wanted.resource_namespace)
    except NotFound:
        return Leader(lock)
    except KubeError as error:
        return Leader(lock, problem=str(error))
    spec = lease.spec
    if spec is None or not spec.holder_identity or spec.renew_time is None:
        return Leader(lock)
    age = (now - spec.renew_time).total_seconds()
    alive = age <= (spec.lease_duration_seconds or wanted.durations.lease)
    return Leader(lock, spec.holder_identity, spec.renew_time, is_alive=alive)


def _is_ours(event: Event) -> bool:
    source = event.source.component if event.source else ""
    return (source or event.reporting_component) in OURS


def _moment(event: Event) -> float:
    at = _time(event)
    return at.timestamp() if at else 0.0


def _time(event: Event) -> datetime | None:
    return event.last_timestamp or event.metadata.creation_timestamp
