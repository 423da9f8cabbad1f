"""The reasons of events on Services, and what a failure is called: the Go framework's, and ours."""

from collections.abc import Iterable
from enum import StrEnum

NAMED = 20
"""Nodes that are named in an event; of more, only the number."""


class Reason(StrEnum):
    ENSURING = "EnsuringLoadBalancer"
    ENSURED = "EnsuredLoadBalancer"
    UPDATED = "UpdatedLoadBalancer"
    DELETING = "DeletingLoadBalancer"
    DELETED = "DeletedLoadBalancer"
    UNAVAILABLE = "UnAvailableLoadBalancer"
    SYNC_FAILED = "SyncLoadBalancerFailed"
    UPDATE_FAILED = "UpdateLoadBalancerFailed"
    DELETE_FAILED = "DeleteLoadBalancerFailed"
    KEPT = "LoadBalancerKept"
    HELD = "LoadBalancerMembersHeld"
    MISSPELT = "UnknownAnnotation"
    ORPHANED = "OrphanedLoadBalancers"
    PAUSED = "OrphanDeletionPaused"
    VANISHED = "ManyServicesVanished"


class Stage(StrEnum):
    """What a failure would be a failure of."""

    ENSURE = "failed to ensure load balancer"
    CHECK = "failed to check if load balancer exists before cleanup"
    DELETE = "failed to delete load balancer"
    CLAIM = "failed to add load balancer cleanup finalizer"
    RELEASE = "failed to remove load balancer cleanup finalizer"
    PUBLISH = "failed to update load balancer status"
    UPDATE = "Error updating load balancer with new hosts"
    BURY = "Error deleting load balancer"


def failure_event(stage: Stage, hosts: str, message: str) -> tuple[Reason, str]:
    """The event for a failure at that stage; `hosts`: who would have been the members."""
    match stage:
        case Stage.UPDATE:
            return Reason.UPDATE_FAILED, f"{stage} {hosts}, error: {message}"
        case Stage.BURY:
            return Reason.DELETE_FAILED, f"{stage}: {message}"
        case _:
            return Reason.SYNC_FAILED, f"Error syncing load balancer: {stage}: {message}"


def hosts_of(names: Iterable[str]) -> str:
    """Nodes as the Go framework names them in an event."""
    every = sorted(names)
    more = f" <{len(every) - NAMED} more>" if len(every) > NAMED else ""
    shown = " ".join(every[:NAMED])
    return f"[{shown}{more}] [node names limited, total number of nodes: {len(every)}]"
