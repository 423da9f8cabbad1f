"""What users see of a Service's state: events, and the condition that explains a failure.

Reasons and messages of the Go framework are kept as they are.
"""

import asyncio
from enum import StrEnum
from functools import lru_cache

from pileus.clock import Clock
from pileus.cloud import errors as cloud
from pileus.cloud.balancer import Balancer
from pileus.cloud.model import NodeRef
from pileus.controllers.service.annotations import asked_for
from pileus.controllers.service.notes import Attempt, Failing, Notes, Stage, is_orphan
from pileus.controllers.service.observation import ClusterServices
from pileus.controllers.service.status import State, Verdict, Wording, Write, condition_write
from pileus.dataclass import dataclass, replace
from pileus.fix import one_line
from pileus.kube import errors as kube
from pileus.kube.model.core_v1 import ObjectReference, Service
from pileus.objects.events import ObjectEvents, shortened
from pileus.runtime.failure import PassTooLong, is_expected
from pileus.telemetry.log import Log

log = Log(__name__)

PATIENCE = 10.0
"""Seconds for which a failure or a wait may last before it is reported, if it may end by itself."""
NAMED = 20
"""Nodes that an event names; of more, only the number is given."""
KUBE_SYSTEM = ObjectReference(api_version="v1", kind="Namespace", name="kube-system")
"""The object of events that concern no single Service."""


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
    NO_EFFECT = "AnnotationHasNoEffect"
    ORPHANED = "OrphanedLoadBalancers"
    PAUSED = "OrphanDeletionPaused"
    VANISHED = "ManyServicesVanished"
    SHARED_ADDRESS = "NodeAddressShared"
    """On nodes."""


FAILURES = (Reason.SYNC_FAILED, Reason.UPDATE_FAILED, Reason.DELETE_FAILED)


@dataclass(frozen=True, slots=True)
class Event:
    reason: Reason
    message: str


ENSURING = Event(Reason.ENSURING, "Ensuring load balancer")
ENSURED = Event(Reason.ENSURED, "Ensured load balancer")
UPDATED = Event(Reason.UPDATED, "Updated load balancer with new hosts")
DELETING = Event(Reason.DELETING, "Deleting load balancer")
DELETED = Event(Reason.DELETED, "Deleted load balancer")
UNAVAILABLE = Event(Reason.UNAVAILABLE, "There are no available nodes for LoadBalancer")


def shared_address(address: str, names: tuple[str, ...]) -> str:
    """Returns the message about nodes that have one address."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return (
        f"Nodes {', '.join(names[:NAMED])}{more} have the same address {one_line(address)}: "
        "load balancers send traffic to one of them only. Fix: delete the Node whose "
        "machine is gone, or correct the addresses of the machines"
    )


def failure_event(attempt: Attempt, error: Exception) -> Event:
    """Returns the event for a failure of what the pass was doing, in the Go framework's words.

    What to do about it is said by the condition. An error with the attribute `is_whole_message`
    says itself which operation failed.
    """
    text = (str(error) or type(error).__name__) if is_expected(error) else message_of(error)
    match attempt.stage:
        case Stage.UPDATE as stage:
            return Event(Reason.UPDATE_FAILED, f"{stage} {attempt.hosts}, error: {text}")
        case Stage.CLEAN_UP as stage:
            return Event(Reason.DELETE_FAILED, f"{stage}: {text}")
        case stage:
            is_whole = getattr(error, "is_whole_message", False) is True
            what = text if is_whole else f"{stage}: {text}"
            return Event(Reason.SYNC_FAILED, f"Error syncing load balancer: {what}")


@lru_cache(maxsize=4)
def hosts_of(members: frozenset[NodeRef]) -> str:
    """Returns node names as the Go framework formats them in an event.

    Cached, because a thousand Services share one set of a thousand members.
    """
    every = sorted(each.name for each in members)
    more = f" <{len(every) - NAMED} more>" if len(every) > NAMED else ""
    shown = " ".join(every[:NAMED])
    return f"[{shown}{more}] [node names limited, total number of nodes: {len(every)}]"


_REASONS: tuple[tuple[type[Exception], str, str], ...] = (
    (cloud.QuotaExceeded, "QuotaExceeded", "free resources in the cloud or raise the quota"),
    (cloud.Unauthorized, "Unauthorized", "fix the provider's credentials or their permissions"),
    (cloud.NeedsMembers, "WaitsForMembers", "add a node"),
    (cloud.Misconfigured, "Misconfigured", "correct the named setting"),
    (cloud.Unsupported, "Unsupported", "this cloud does not support it; change the Service"),
    (cloud.Rejected, "Rejected", "the cloud rejected the request; change the Service"),
    (cloud.Throttled, "Throttled", "retrying; no action needed"),
    (cloud.Unavailable, "CloudUnavailable", "retrying until the cloud answers"),
    (cloud.Conflict, "Contested", "retrying"),
    (cloud.CloudError, "CloudError", "retrying"),
    (kube.Forbidden, "ServiceWriteForbidden", "grant the manager the right to services/status"),
    (kube.ApiError, "ServiceWriteFailed", "retrying"),
    (PassTooLong, "TimedOut", "retrying"),
)


def reason_of(error: Exception) -> str:
    """Returns the reason of the condition: one CamelCase word from a fixed set."""
    return _entry(error)[0]


def message_of(error: Exception) -> str:
    """Returns the error's own message and what to do about it."""
    said = str(error).rstrip(". ") or type(error).__name__
    advice = _entry(error)[1]
    if not is_expected(error):
        said, advice = f"internal error {type(error).__name__}", "see the manager's log"
    has_fix = "Fix: " in said  # a command that is pasted as it is
    return shortened(f"{said} ({advice})" if advice and not has_fix else said)


def verdict_on(error: Exception) -> Verdict:
    is_unknown = isinstance(error, cloud.Throttled | cloud.Unavailable)
    return Verdict(
        State.UNKNOWN if is_unknown else State.FALSE, reason_of(error), message_of(error)
    )


def is_reported_at_once(error: Exception) -> bool:
    """Returns whether a report need not wait for `PATIENCE`.

    True for errors that do not end by themselves (configuration, quota, rights), for passes that
    already took long, for bugs, and for errors with the attribute `is_reported_at_once`. False for
    a load balancer that waits for its first member.
    """
    if isinstance(error, cloud.NeedsMembers):
        return False
    may_end = cloud.CloudError | kube.KubeError
    needs_action = cloud.Rejected | cloud.Unsupported | kube.Forbidden | kube.Invalid
    says_so = getattr(error, "is_reported_at_once", False) is True
    return says_so or isinstance(error, needs_action) or not isinstance(error, may_end)


def _entry(error: Exception) -> tuple[str, str]:
    return next(
        ((name, advice) for kind, name, advice in _REASONS if isinstance(error, kind)),
        ("SyncFailed", ""),
    )


class Reporter:
    """Records events on Services and writes their conditions."""

    def __init__(
        self, cluster: ClusterServices, notes: Notes, notices: ObjectEvents, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._notes = notes
        self._notices = notices
        self._clock = clock

    def announce(self, service: Service, event: Event | None) -> None:
        if event is not None and not is_orphan(service):
            self._notices.announce(about_service(service), event.reason, event.message)

    def warn(self, service: Service, event: Event | None, *, by_text: bool = False) -> None:
        """Record a Warning, at most once an hour until `resolved`; `by_text`: each text once."""
        if event is not None and not is_orphan(service):
            about, text = about_service(service), shortened(event.message)
            self._notices.warn(about, event.reason, text, by_text=by_text)

    def resolved(self, service: Service, *reasons: Reason) -> None:
        for reason in reasons:
            self._notices.forget(about_service(service), reason)

    def notices(self, service: Service, balancer: Balancer | None, *, full: bool) -> None:
        """Record what the provider has to say about the load balancer, unless it is recorded.

        A quick check may not show all: what it does not mention may be repeated after a full check.
        """
        if balancer is None or is_orphan(service):
            return
        about, found = about_service(service), balancer.notices
        before = self._notes.of(service.metadata.uid).notices
        for notice in (each for each in found if each not in before):
            record = self._warn_again if notice.is_warning else self._notices.announce
            record(about, notice.reason, shortened(notice.message))
        reasons = {each.reason for each in found}
        unmentioned = () if full else (each for each in before if each.reason not in reasons)
        self._notes.update(service.metadata.uid, notices=(*found, *unmentioned))

    def _warn_again(self, about: ObjectReference, reason: str, message: str) -> None:
        self._notices.forget(about, reason)
        self._notices.warn(about, reason, message)

    def many_vanished(self, kept: int) -> None:
        """Report that the load balancers of vanished Services are kept as orphans."""
        log.error("Many Services vanished: keeping their load balancers", count=kept)
        text = (
            f"{kept} Services vanished without their finalizer being removed by the controller, or "
            "soon after many others. Their load balancers are kept as orphans. "
            "List and delete them: pileus orphans"
        )
        self._notices.forget(KUBE_SYSTEM, Reason.VANISHED)
        self._notices.warn(KUBE_SYSTEM, Reason.VANISHED, text)

    async def write(self, service: Service, write: Write) -> Service:
        """Make the write unless it is empty, and return the Service. Raises KubeError."""
        if not write:
            return service
        if write.condition is not None:
            self._notes.update(
                service.metadata.uid, condition_written=_now(), condition_asked=asked_for(service)
            )
        return await self._cluster.write(service, write)

    async def condition(self, service: Service, write: Write) -> None:
        """Write the condition. If the write fails it is logged and retried with back-off."""
        pacing = self._notes.of(service.metadata.uid).pacing
        if not pacing.is_due(_now()):
            return
        try:
            await self.write(service, write)
            pacing.succeeded()
        except kube.KubeError as refused:
            pacing.failed(refused, _now())
            log.warning("Cannot write the condition", service=name_of(service), err=refused)

    async def failure(
        self, service: Service, error: Exception, *, since: float | None = None
    ) -> None:
        """Report a failure by event and condition, once it has lasted for `PATIENCE`.

        `since`: when the failed pass began; a pass that took long is reported at once.
        """
        uid, now = service.metadata.uid, _now()
        note = self._notes.of(uid)
        failing = note.failing or Failing(now if since is None else since)
        self._notes.update(uid, failing=failing)
        if now - failing.since < PATIENCE and not is_reported_at_once(error):
            return
        self.failure_event(service, error)
        wording = Wording(self._clock.now(), reword=note.may_reword(now, asked_for(service)))
        await self.condition(service, condition_write(service, verdict_on(error), wording))

    def failure_event(self, service: Service, error: Exception) -> None:
        """Record the event of a failure: once per kind of error until `resolved`.

        It is recorded again if the Service has asked for something else since. An error with the
        attribute `is_reported_by_text` is recorded again if its text changes. Passes back off, so
        that even texts that always differ are no more events than in Go.
        """
        uid = service.metadata.uid
        note = self._notes.of(uid)
        failing = note.failing or Failing(_now())
        reason, asked = reason_of(error), asked_for(service)
        if (failing.reason, failing.asked) != (reason, asked):
            self.resolved(service, *FAILURES)
            self._notes.update(uid, failing=replace(failing, reason=reason, asked=asked))
        by_text = getattr(error, "is_reported_by_text", False) is True
        self.warn(service, failure_event(note.doing, error), by_text=by_text)


def about_service(service: Service) -> ObjectReference:
    metadata = service.metadata
    return ObjectReference(
        api_version="v1",
        kind="Service",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
    )


def name_of(service: Service) -> str:
    """Returns the Service's name for the log."""
    metadata = service.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.name else f"UID {metadata.uid}"


def _now() -> float:
    return asyncio.get_running_loop().time()
