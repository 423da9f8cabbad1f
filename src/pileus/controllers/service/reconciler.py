"""A pass over one Service: observe, plan, perform the steps.

UID ──▶ observation ──plan──▶ steps ──perform──▶ new observation ──▶ plan again, or the result
"""

import asyncio
from collections.abc import Callable, Container
from contextlib import suppress
from math import inf
from typing import assert_never

from pileus.clock import Clock
from pileus.cloud import errors as cloud
from pileus.cloud.balancer import Part
from pileus.cloud.interface import Reconciliation
from pileus.controllers.service.annotations import asked_for, is_load_balancer, member_scope
from pileus.controllers.service.events import (
    FAILURES,
    PATIENCE,
    Event,
    Reason,
    Reporter,
    name_of,
    verdict_on,
)
from pileus.controllers.service.lines import record_balancer, record_service, record_steps
from pileus.controllers.service.members import Membership, NewNodes
from pileus.controllers.service.notes import (
    PAUSE,
    UNKNOWN,
    DeletedServices,
    Deletion,
    Failing,
    Notes,
    Stage,
    is_orphan,
)
from pileus.controllers.service.observation import (
    Applied,
    BalancerOperations,
    ClusterServices,
    Continued,
    Deleted,
    Observation,
    ServiceReplaced,
    SharedLocks,
    Visit,
)
from pileus.controllers.service.plan import FORMER, Rules, Serve, attempt_of, course_of, plan
from pileus.controllers.service.status import (
    Wording,
    condition_write,
    finalizer_addition,
    has_finalizer,
    published_ingress,
)
from pileus.controllers.service.steps import (
    AddFinalizer,
    ApplyChanges,
    CheckAgain,
    CheckBalancer,
    CheckNodes,
    ConfirmDeletion,
    Forget,
    KeepAsOrphans,
    KeepMembers,
    Plan,
    Publish,
    RemoveFinalizer,
    Report,
    Settle,
    Step,
    Wait,
    WaitForFormer,
)
from pileus.dataclass import dataclass, replace
from pileus.kube.errors import ApiError, Conflict, NotFound
from pileus.kube.model.core_v1 import Service
from pileus.runtime.failure import hint
from pileus.runtime.reconcile import DONE, Result, again_in, refresh_in
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

MOST_PLANS = 20
"""Plans that one pass may make; a pass that needs more is continued by the next one."""
FINALIZER_TRIES = 5
"""Attempts to add the finalizer to a Service that other clients write to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What passes, previews and the orphan sweep work with."""

    rules: Rules
    cluster: ClusterServices
    balancers: BalancerOperations
    membership: Membership
    new_nodes: NewNodes
    notes: Notes
    deleted: DeletedServices
    reporter: Reporter
    clock: Clock
    metrics: Metrics
    reconciled: Callable[[Reconciliation, float, bool], None] | None = None
    """See `Cloud.reconciled`."""


RECONCILIATIONS = {
    Stage.UPDATE: Reconciliation.UPDATE,
    Stage.CHECK: Reconciliation.DELETE,
    Stage.DELETE: Reconciliation.DELETE,
    Stage.CLEAN_UP: Reconciliation.DELETE,
}
"""All other stages are of `ENSURE`."""


class ServiceReconciler:
    """Key: the Service's UID, which is also the owner in the cloud."""

    def __init__(self, parts: Parts, finished: Callable[[str], None]) -> None:
        """`finished` is called with the key of each pass that ends, successful or not."""
        self._parts = parts
        self._finished = finished
        self._locks = SharedLocks()

    async def reconcile(self, key: str) -> Result:
        try:
            return await self._reconcile(key)
        finally:
            self._finished(key)

    async def report(self, key: str, error: Exception) -> None:
        """Report on the Service that its pass ran out of time, or failed by a bug."""
        service, deleted = self._parts.cluster.service(key), self._parts.deleted.find(key)
        if service is not None:
            await self._parts.reporter.failure(service, error)
        elif deleted is not None:
            self._parts.reporter.failure_event(deleted.service, error)
        else:
            self._parts.notes.forget(key)

    async def _reconcile(self, key: str) -> Result:
        began = _now()
        seen = self._observe(key)
        if seen is None:
            self._parts.notes.forget(key)
            return DONE
        record_service(seen.service)
        wait = self._until_members(seen)
        if wait > 0:
            return again_in(wait)
        try:
            with self._locks.visit() as visit:
                return await self._pass(seen, visit)
        except (NotFound, ServiceReplaced) as error:
            if seen.deleted is not None:
                raise
            log.info(
                "Service deleted during its pass", v=2, service=name_of(seen.service), err=error
            )
            return DONE
        except (cloud.Conflict, cloud.NotFound) as error:
            return await self._check_later(seen, error)
        except (cloud.CloudError, ApiError) as error:
            return await self._failed(seen, error, began)

    def _until_members(self, seen: Observation) -> float:
        """Returns for how long a Service without a load balancer waits for new nodes."""
        service = seen.service
        is_new = not seen.note.known and not published_ingress(service)
        if seen.deleted or service.metadata.deletion_timestamp or not is_new:
            return 0.0
        is_served = is_load_balancer(service) and self._parts.rules.classes.serve(service)
        return self._parts.new_nodes.wait(service.metadata.uid) if is_served else 0.0

    def _observe(self, uid: str) -> Observation | None:
        """Returns what is known before the cloud is asked; None if the Service is unknown."""
        parts, now = self._parts, _now()
        service, deleted = parts.cluster.service(uid), parts.deleted.find(uid)
        if service is not None:
            parts.deleted.returned(uid)
            former = parts.deleted.former(service)
            seen = Observation(
                service=service,
                time=now,
                date=parts.clock.now(),
                members=parts.membership.now(member_scope(service)),
                former=former and (former.service.metadata.uid, now - former.since - PAUSE),
            )
        elif deleted is not None:
            is_due = not is_orphan(deleted.service) and now - deleted.since >= PAUSE
            too_many = parts.deleted.too_many(self._served(), now) if is_due else 0
            seen = Observation(
                service=deleted.service,
                time=now,
                date=parts.clock.now(),
                deleted=Deleted(deleted.since, too_many),
            )
        else:
            return None
        return self._current(seen)

    def _served(self, existing: Container[str] = frozenset()) -> int:
        notes, deleted = self._parts.notes.items(), self._parts.deleted
        return sum(note.known and (uid in existing or uid not in deleted) for uid, note in notes)

    def _current(self, seen: Observation) -> Observation:
        """Returns the observation with the current time and note."""
        note = self._parts.notes.find(seen.service.metadata.uid) or UNKNOWN
        return replace(seen, note=note, time=_now(), date=self._parts.clock.now())

    async def _pass(self, seen: Observation, visit: Visit) -> Result:
        """Plan and perform until a step ends the pass.

        Load balancers are changed under the lock of those that share them. If another pass held
        it meanwhile, the load balancer is checked again.
        """
        for _ in range(MOST_PLANS):
            steps = plan(self._parts.rules, seen)
            if not steps:
                self._leave(seen.service.metadata.uid)
            if _changes(steps) and seen.balancer is not None and await visit.take():
                check = CheckBalancer(seen.balancer.desired, full=True)
                outcome: Observation | Result = await self._check(seen, check, visit)
            else:
                outcome = await self._perform_all(seen, steps, visit)
            if isinstance(outcome, Result):
                return outcome
            seen = self._current(outcome)
        return again_in(0)

    def _leave(self, uid: str) -> None:
        if not self._parts.notes.is_released(uid):
            self._parts.notes.forget(uid)

    async def _perform_all(
        self, seen: Observation, steps: Plan, visit: Visit
    ) -> Observation | Result:
        """Perform the steps up to the first that brings a new observation or ends the pass."""
        record_steps(seen.service, steps)
        for step in steps:
            attempt = attempt_of(self._parts.rules, seen, step)
            self._parts.notes.update(seen.service.metadata.uid, doing=attempt)
            outcome = await self._perform(seen, step, visit)
            if isinstance(outcome, Continued):
                seen = outcome.seen
            elif outcome is not None:
                return outcome
        return DONE

    async def _perform(  # noqa: C901, PLR0911, PLR0912 -- one case per step
        self, seen: Observation, step: Step, visit: Visit
    ) -> Observation | Result | Continued | None:
        """Returns a new observation, the result of the pass, or that the next step follows."""
        match step:
            case CheckBalancer():
                return await self._check(seen, step, visit)
            case AddFinalizer():
                return await self._add_finalizer(seen, step)
            case KeepMembers():
                return self._keep_members(seen, step)
            case CheckNodes():
                return await self._check_nodes(seen)
            case ApplyChanges():
                return await self._apply(seen, step)
            case Wait():
                return await self._wait(seen, step)
            case Publish(write):
                await self._parts.reporter.write(seen.service, write)
                return None
            case Settle():
                return self._settle(seen, step)
            case CheckAgain():
                return self._check_missing(seen, step)
            case RemoveFinalizer():
                return await self._remove_finalizer(seen, step)
            case ConfirmDeletion():
                return await self._confirm_deletion(seen)
            case KeepAsOrphans():
                return await self._keep_as_orphans(seen)
            case Forget():
                return self._forget(seen, step)
            case WaitForFormer(write, seconds):
                await self._parts.reporter.condition(seen.service, write)
                return again_in(seconds)
            case Report(error):
                raise error
            case _:
                assert_never(step)

    async def _check_nodes(self, seen: Observation) -> Observation:
        scope = member_scope(seen.service)
        members = await self._parts.membership.second_check(scope)
        return replace(seen, members=members, nodes_confirmed=True, balancer=None)

    async def _check(self, seen: Observation, step: CheckBalancer, visit: Visit) -> Observation:
        parts, uid = self._parts, seen.service.metadata.uid
        if step.ignored:
            warning = Event(Reason.MISSPELT, f"Ignored: {'; '.join(step.ignored)}")
            parts.reporter.warn(seen.service, warning)
        else:
            parts.reporter.resolved(seen.service, Reason.MISSPELT)
        visit.join(parts.balancers.lock_key(step.desired))
        observed = await parts.balancers.check_or(step.desired, step.fallback, full=step.full)
        record_balancer(seen.service, observed.balancer)
        if step.full:
            parts.notes.checked_in_full(uid)
        parts.reporter.notices(seen.service, observed.balancer, full=step.full)
        if observed.balancer is not None:
            parts.notes.found(uid)
        return replace(seen, balancer=observed)

    async def _add_finalizer(
        self, seen: Observation, step: AddFinalizer
    ) -> Observation | Result | Continued:
        """Raises Conflict if other clients keep writing to the Service."""
        parts, service, write = self._parts, seen.service, step.write
        for tries in range(1, FINALIZER_TRIES + 1):
            try:
                after = replace(seen, service=await parts.cluster.write(service, write))
            except Conflict:
                if tries == FINALIZER_TRIES:
                    raise
            else:
                return Continued(after) if tries == 1 else after
            service = await parts.cluster.read(service)
            now = course_of(parts.rules, replace(seen, service=service, note=UNKNOWN))
            if now != course_of(parts.rules, seen):
                return again_in(0)
            if has_finalizer(service):
                break
            write = finalizer_addition(service, parts.rules.classes, parts.clock.now())
        return replace(seen, service=service)

    def _keep_members(self, seen: Observation, step: KeepMembers) -> Result:
        uid = seen.service.metadata.uid
        if seen.note.members_kept_since is None:
            self._parts.notes.update(uid, members_kept_since=_now())
        if step.warning is not None:
            log.warning(
                "Keeping members until a second check of the nodes",
                service=name_of(seen.service),
                why=step.warning.message,
            )
            self._parts.reporter.warn(seen.service, step.warning)
        return again_in(step.seconds)

    async def _apply(self, seen: Observation, step: ApplyChanges) -> Observation:
        parts, service, uid = self._parts, seen.service, seen.service.metadata.uid
        observed = seen.balancer
        if observed is None:
            raise RuntimeError("changes are planned for a load balancer that was not checked")
        self._before_changes(seen, step)
        began, is_update = _now(), step.attempt.stage is Stage.UPDATE and step.is_first
        try:
            done, after = await parts.balancers.apply(observed, step.changes)
        finally:
            if is_update:
                parts.metrics.host_updates.inc()
                parts.metrics.host_update_duration.observe(_now() - began)
        if step.is_drift:
            parts.metrics.service_drift_repaired.inc()
        parts.notes.progress(uid, tuple(change.summary for change in done))
        if after.is_whole_deletion(step.changes, done):
            deletion = replace(parts.notes.of(uid).deletion, accepted_at=_now())
            parts.notes.update(uid, deletion=deletion)
        parts.reporter.announce(service, step.after)
        parts.reporter.notices(service, after.balancer, full=False)
        before = seen.applied
        applied = Applied(
            (*before.done, *done), step.changes, before.rounds + 1, attempt=step.attempt
        )
        return replace(seen, balancer=after, applied=applied)

    def _before_changes(self, seen: Observation, step: ApplyChanges) -> None:
        parts, service, uid = self._parts, seen.service, seen.service.metadata.uid
        parts.reporter.announce(service, step.before)
        note, stage = parts.notes.of(uid), step.attempt.stage
        is_record = all(change.part is Part.RECORD for change in step.changes)
        parts.notes.update(
            uid,
            deletion=Deletion(),
            announced=note.announced if step.before is None else stage.announced,
            known=note.known or stage in {Stage.ENSURE, Stage.UPDATE},
            begun=note.begun or (None if is_record else (stage, _now())),
            members_kept_since=note.members_kept_since if seen.nodes_confirmed else None,
        )
        for change in step.changes:
            log.info(
                "Changing load balancer",
                service=name_of(service),
                effect=change.effect,
                change=change.summary,
            )

    async def _wait(self, seen: Observation, step: Wait) -> Result:
        notes, uid = self._parts.notes, seen.service.metadata.uid
        delay = notes.wait(uid, step.asked)
        if step.write and notes.of(uid).waited(_now()) >= PATIENCE:
            await self._parts.reporter.condition(seen.service, step.write)
        return again_in(delay)

    def _settle(self, seen: Observation, step: Settle) -> Result:
        parts, service, uid = self._parts, seen.service, seen.service.metadata.uid
        parts.reporter.warn(service, step.warning)
        parts.reporter.announce(service, step.after)
        parts.reporter.resolved(service, *FAILURES, Reason.HELD)
        if step.desired.spec is not None and step.desired.spec.members:
            parts.reporter.resolved(service, Reason.UNAVAILABLE)
        self._reconciled(seen.note.begun)
        parts.notes.settle(uid, step.desired)
        until_full = max(parts.notes.of(uid).full_check_due - _now(), 0.0)
        delay = until_full if step.seconds is None else min(step.seconds, until_full)
        return DONE if delay == inf else refresh_in(delay)

    def _check_missing(self, seen: Observation, step: CheckAgain) -> Result:
        notes, uid = self._parts.notes, seen.service.metadata.uid
        deletion = notes.of(uid).deletion
        if step.is_missing:
            log.info(
                "No load balancer found, checking again",
                service=name_of(seen.service),
                seconds=step.seconds,
            )
            if deletion.missing_since is None:
                notes.update(uid, deletion=replace(deletion, missing_since=_now()))
        return again_in(step.seconds)

    async def _remove_finalizer(self, seen: Observation, step: RemoveFinalizer) -> Result:
        """The note is removed first: the watch may show the deletion before the answer comes."""
        parts, service, uid = self._parts, seen.service, seen.service.metadata.uid
        note = parts.notes.of(uid)
        parts.notes.release(uid)
        try:
            if step.write:
                await parts.cluster.write(service, step.write)
        except NotFound:
            log.info("Service is already deleted", v=2, service=name_of(service))
        except BaseException:
            parts.notes.restore(uid, note)
            raise
        parts.reporter.announce(service, step.after)
        self._reconciled(note.begun)
        return DONE

    async def _confirm_deletion(self, seen: Observation) -> Observation | Result:
        """A Service that one watch does not show may still exist."""
        with suppress(NotFound, ServiceReplaced):
            await self._parts.cluster.read(seen.service)
            return again_in(FORMER)
        return replace(seen, deleted=seen.deleted and replace(seen.deleted, is_confirmed=True))

    async def _keep_as_orphans(self, seen: Observation) -> Observation | Result:
        """The pass goes on if most of them exist: one watch may show fewer Services."""
        parts, uid = self._parts, seen.service.metadata.uid
        existing = await parts.cluster.listed_uids()
        count = parts.deleted.too_many(self._served(existing), _now(), existing)
        if count:
            parts.deleted.keep_as_orphans(_now(), existing)
            parts.reporter.many_vanished(count)
            parts.metrics.vanished_services_kept.inc(count)
        if uid not in parts.deleted:  # kept by this pass or by another one
            parts.notes.forget(uid)
            return DONE
        if uid in existing:
            return again_in(FORMER)
        return replace(seen, deleted=seen.deleted and replace(seen.deleted, too_many=0))

    def _forget(self, seen: Observation, step: Forget) -> Result:
        parts, uid = self._parts, seen.service.metadata.uid
        parts.reporter.announce(seen.service, step.after)
        self._reconciled(parts.notes.of(uid).begun)
        parts.deleted.cleaned_up(uid, _now())
        parts.notes.forget(uid)
        return DONE

    async def _check_later(self, seen: Observation, error: cloud.CloudError) -> Result:
        """The cloud is busy, or another client was quicker: not a failure unless it lasts."""
        parts, service, uid = self._parts, seen.service, seen.service.metadata.uid
        delay = parts.notes.wait(uid, None)
        note = parts.notes.of(uid)
        if note.waited(_now()) >= PATIENCE and seen.deleted is not None:
            parts.reporter.failure_event(service, error)
        elif note.waited(_now()) >= PATIENCE:
            may_reword = note.may_reword(_now(), asked_for(service))
            wording = Wording(parts.clock.now(), reword=may_reword)
            write = condition_write(service, verdict_on(error), wording)
            await parts.reporter.condition(service, write)
        return again_in(delay)

    async def _failed(self, seen: Observation, error: Exception, began: float) -> Result:
        """Report the failure and raise it; a failed host update is followed by a full pass."""
        parts, uid = self._parts, seen.service.metadata.uid
        if isinstance(error, cloud.CloudError):
            note = parts.notes.of(uid)
            self._reconciled(note.begun or (note.doing.stage, began), has_failed=True)
        if seen.deleted is not None:
            if isinstance(error, cloud.CloudError):
                parts.reporter.failure_event(seen.service, error)
            raise error
        await parts.reporter.failure(seen.service, error, since=began)
        has_members = parts.notes.of(uid).known or isinstance(error, cloud.NeedsMembers)
        is_served = isinstance(course_of(parts.rules, seen), Serve)
        parts.notes.fail_with(uid, seen.members if is_served and has_members else None)
        if parts.notes.of(uid).doing.stage is not Stage.UPDATE:
            raise error
        return self._ensure_next(seen.service, error, began)

    def _reconciled(self, begun: tuple[Stage, float] | None, *, has_failed: bool = False) -> None:
        """Let the provider count what ended, if anything was to be changed."""
        if begun is not None and self._parts.reconciled is not None:
            stage, since = begun
            kind = RECONCILIATIONS.get(stage, Reconciliation.ENSURE)
            self._parts.reconciled(kind, _now() - since, has_failed)

    def _ensure_next(self, service: Service, error: Exception, began: float) -> Result:
        """After a failed host update everything is ensured at once, as in Go.

        Only once: failures of that pass are retried with back-off. Raises the error if it asks for
        a delay.
        """
        parts, uid = self._parts, service.metadata.uid
        parts.metrics.host_update_errors.inc()
        failing = parts.notes.of(uid).failing or Failing(began)
        parts.notes.update(uid, failing=replace(failing, host_update=True))
        if hint(error) is not None:
            raise error
        log.warning(
            "Host update failed, ensuring load balancer", service=name_of(service), err=error
        )
        return again_in(0)


def _changes(steps: Plan) -> bool:
    return any(isinstance(step, ApplyChanges) for step in steps)


def _now() -> float:
    return asyncio.get_running_loop().time()
