"""The plan of a pass: from an observation to the steps that come next. No I/O, clock or randomness.

    serve:    CheckBalancer ▸ AddFinalizer ▸ KeepMembers ▸ ApplyChanges ▸ Wait ▸ Publish ▸ Settle
    withdraw: CheckBalancer ▸ ApplyChanges ▸ Wait ▸ CheckAgain ▸ RemoveFinalizer
    clean up: CheckAgain ▸ ConfirmDeletion ▸ CheckBalancer ▸ ApplyChanges ▸ Wait ▸ Forget

A plan holds all steps that can be foreseen. A pass performs them in order until one of them brings
a new observation or ends the pass; then the plan is made again. `pileus plan` shows the same steps.
The finalizer is added before the first change in the cloud and removed after the last.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pileus.cloud.balancer import (
    Balancer,
    BalancerState,
    Change,
    Effect,
    Part,
    record_of,
)
from pileus.cloud.errors import CloudError, Misconfigured, Unavailable, Unsupported
from pileus.cloud.model import NodeRef
from pileus.controllers.service.annotations import (
    MANAGE,
    Classes,
    InvalidAnnotation,
    Mode,
    asked_for,
    mode_of,
)
from pileus.controllers.service.desired import (
    Desires,
    InvalidService,
    differ_in_members,
    narrowed,
)
from pileus.controllers.service.events import (
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    UNAVAILABLE,
    UPDATED,
    Event,
    Reason,
    hosts_of,
    verdict_on,
)
from pileus.controllers.service.notes import PAUSE, Attempt, Stage, is_orphan
from pileus.controllers.service.observation import Fallback, Observation, Observed
from pileus.controllers.service.status import (
    NOTHING,
    Outcome,
    Record,
    Wording,
    condition_write,
    expected,
    finalizer_addition,
    has_finalizer,
    may_have_served,
    pending,
    publication,
    published_ingress,
    release,
    served_class,
    waits_for_former,
    went_elsewhere,
)
from pileus.controllers.service.steps import (
    SECOND_CHECK_OF_NODES,
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
from pileus.kube.model.core_v1 import Service

SECOND_CHECK = 30.0
"""Seconds between two checks that find nothing, before the finalizer is removed."""
LAST_CHECK = 3.0
"""Seconds between the deletion and the check that nothing is left: a list that was wrong for a
moment is right again."""
FORMER = 2.0
"""Seconds between the first checks whether a Service of the same name is cleaned up."""
FORMER_MOST = 15.0
"""The longest time between two such checks; the time doubles."""

STAGES: Mapping[type[Step], Stage] = {
    AddFinalizer: Stage.ADD_FINALIZER,
    Publish: Stage.PUBLISH,
    RemoveFinalizer: Stage.REMOVE_FINALIZER,
    Settle: Stage.ENSURE,
}
ChangeT = TypeVar("ChangeT", bound=Change)


@dataclass(frozen=True, slots=True)
class Rules:
    """What all plans of a controller have in common."""

    desires: Desires
    classes: Classes


class BalancerFailed(CloudError):
    """The cloud reports that the load balancer has failed."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The Service is not ours, and nothing in the cloud belongs to it."""


@dataclass(frozen=True, slots=True)
class Serve:
    mode: Mode


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The Service no longer needs its load balancer, which is deleted as far as the mode allows."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The Service is deleted, and its load balancer may be left."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class Invalid:
    """The Service is ours, but an annotation is not valid: nothing is changed."""

    message: str


Course = Leave | Serve | Withdraw | CleanUp | Invalid


def course(service: Service, classes: Classes, *, known: bool) -> Course:
    """Returns what is to be done for a Service that exists.

    `known`: there is evidence of a load balancer with this owner. A finalizer alone is none: other
    controllers use the same one.
    """
    deleting = service.metadata.deletion_timestamp is not None
    is_served = classes.serve(service) and not deleting
    may_be_ours = may_have_served(service, classes) or went_elsewhere(service, classes)
    is_left = known or (has_finalizer(service) and may_be_ours)
    if not is_served and not is_left:
        return Leave()
    try:
        mode = mode_of(service)
    except InvalidAnnotation as error:
        return Invalid(str(error))
    if is_served and mode is not Mode.NONE:
        return Serve(mode)
    return Withdraw(mode) if is_left else Leave()


def course_of(rules: Rules, seen: Observation) -> Course:
    if seen.deleted is None:
        return course(seen.service, rules.classes, known=seen.note.known)
    try:
        return CleanUp(mode_of(seen.service))
    except InvalidAnnotation:
        return CleanUp(Mode.NONE)  # no one can correct it: nothing is deleted


def plan(rules: Rules, seen: Observation) -> Plan:
    """Returns the next steps. An empty plan means that the Service does not concern us."""
    match course_of(rules, seen):
        case Leave():
            return ()
        case Invalid(message):
            return (report(seen, Misconfigured(message)),)
        case Serve(mode):
            return _serve(rules, seen, mode)
        case Withdraw(mode):
            return _withdraw(rules, seen, mode)
        case CleanUp(mode):
            return _clean_up(rules, seen, mode)


def report(seen: Observation, error: CloudError) -> Report:
    return Report(error, condition_write(seen.service, verdict_on(error), _wording(seen)))


def attempt_of(rules: Rules, seen: Observation, step: Step) -> Attempt:
    """Returns what a failure of the step is a failure of."""
    if isinstance(step, ApplyChanges):
        return step.attempt
    if seen.deleted is not None:
        return Attempt(Stage.CLEAN_UP)
    if type(step) in STAGES:
        return Attempt(STAGES[type(step)])
    if isinstance(course_of(rules, seen), Withdraw):
        return Attempt(Stage.DELETE if seen.applied.rounds else Stage.CHECK)
    return Attempt(Stage.ENSURE)


def _serve(rules: Rules, seen: Observation, mode: Mode) -> Plan:
    if seen.former is not None and mode is Mode.FULL:
        return (_wait_for_former(seen, *seen.former),)
    if seen.balancer is None:
        return (_first_check(rules, seen),)
    observed = seen.balancer
    left = doable(observed.changes, mode)
    at_stake = bool(left) or observed.balancer is not None
    finalizer = _finalizer(rules, seen, mode, at_stake=at_stake)
    if left and not seen.applied.is_over(left, is_busy=observed.is_busy):
        changes = *_guard(seen, observed), _apply(seen, observed, left)
        return *finalizer, *changes, *_foreseen(rules, seen, mode, finalizer)
    if observed.balancer is not None and observed.balancer.state is BalancerState.FAILED:
        return (report(seen, _failed(observed.balancer)),)
    if observed.is_unready or left:
        return _wait(seen, observed), *finalizer, *_foreseen(rules, seen, mode, finalizer)
    return *finalizer, *_published(rules, seen, observed, mode, finalizer)


def _wait_for_former(seen: Observation, uid: str, working: float) -> WaitForFormer:
    """Nothing happens during the pause; afterwards the time between two checks doubles."""
    seconds = FORMER - working if working < 0 else min(max(working, FORMER), FORMER_MOST)
    return WaitForFormer(
        condition_write(seen.service, waits_for_former(uid), _wording(seen)), seconds
    )


def _first_check(rules: Rules, seen: Observation) -> Step:
    desired = rules.desires.wish(seen.service, seen.members)
    if isinstance(desired, InvalidService):
        return report(seen, Misconfigured(str(desired)))
    narrower = narrowed(seen.service, desired)
    return CheckBalancer(
        desired,
        full=seen.nodes_confirmed or seen.time >= seen.note.full_check_due,
        fallback=None if narrower is None else Fallback(Unsupported, narrower),
        ignored=rules.desires.ignored_annotations(seen.service),
    )


def doable(changes: Sequence[ChangeT], mode: Mode) -> tuple[ChangeT, ...]:
    """Returns the changes that the mode allows."""
    match mode:
        case Mode.FULL:
            return tuple(changes)
        case Mode.MEMBERS:
            return tuple(change for change in changes if change.part is Part.MEMBERS)
        case Mode.OBSERVE | Mode.NONE:
            return ()


def needs_finalizer(service: Service, mode: Mode, *, at_stake: bool) -> bool:
    """Returns whether the finalizer must be added first.

    `at_stake`: there is a load balancer, or there will be one.
    """
    return mode.writes and at_stake and not has_finalizer(service)


def _finalizer(
    rules: Rules, seen: Observation, mode: Mode, *, at_stake: bool
) -> tuple[AddFinalizer, ...]:
    if not needs_finalizer(seen.service, mode, at_stake=at_stake):
        return ()
    return (AddFinalizer(finalizer_addition(seen.service, rules.classes, seen.date)),)


def loses_too_many(balancer: Balancer | None, wanted: int) -> bool:
    """Returns whether the load balancer would lose all or more than half of its members.

    If the number of its members is unknown, only the loss of all of them counts.
    """
    if balancer is None or balancer.members == 0:
        return False
    if balancer.members is None:
        return wanted == 0
    return wanted * 2 < balancer.members


def _guard(seen: Observation, observed: Observed) -> tuple[KeepMembers | CheckNodes, ...]:
    """Returns what has to happen before members are removed: a second check if they are many."""
    if seen.nodes_confirmed or not loses_too_many(observed.balancer, observed.members):
        return ()
    since = seen.note.members_kept_since
    if since is not None and seen.time - since >= SECOND_CHECK_OF_NODES:
        return (CheckNodes(),)
    had = observed.balancer.members if observed.balancer else None
    warning = Event(
        Reason.HELD,
        f"The load balancer has {'members' if had is None else f'{had} members'} and would be left "
        f"with {observed.members}. Members are kept until a second check of the nodes",
    )
    return (KeepMembers(warning if since is None else None),)


def _apply(seen: Observation, observed: Observed, left: tuple[Change, ...]) -> ApplyChanges:
    """Returns the next changes. Of a failing Service, those of its members come first.

    So they are made even if the others keep failing.
    """
    note, desired, before = seen.note, observed.desired, seen.applied
    is_failing, hosts = note.failing is not None, before.attempt.stage is Stage.UPDATE
    if before.rounds and not (is_failing and hosts):
        return ApplyChanges(left, before.attempt, is_first=False)
    if all(change.part is Part.RECORD for change in left):
        return ApplyChanges(left, Attempt(Stage.ENSURE))
    is_drift, only = desired == note.settled, _host_update(seen, observed, left)
    if only:
        members = desired.spec.members if desired.spec else frozenset[NodeRef]()
        after = UPDATED if members and not before.rounds else None
        attempt = Attempt(Stage.UPDATE, hosts_of(members))
        is_first = not before.rounds
        return ApplyChanges(only, attempt, None, after, is_drift=is_drift, is_first=is_first)
    announcing = None if note.announced is Stage.ENSURE else ENSURING
    return ApplyChanges(left, Attempt(Stage.ENSURE), announcing, is_drift=is_drift)


def _host_update(
    seen: Observation, observed: Observed, left: tuple[Change, ...]
) -> tuple[Change, ...]:
    """Returns the changes that are an update of members alone; none: more is to be ensured.

    After a failed one everything is ensured, until the members change once more.
    """
    failing, members = seen.note.failing, tuple(c for c in left if c.part is Part.MEMBERS)
    if observed.balancer is None or not members:
        return ()
    if failing is not None and failing.host_update and failing.members == seen.members:
        return ()
    if failing is not None:
        return members
    is_all = members == left or differ_in_members(seen.note.settled, observed.desired)
    return left if is_all else ()


def _failed(balancer: Balancer) -> BalancerFailed:
    return BalancerFailed(balancer.problem or f"load balancer {balancer.id} has failed")


def _wait(seen: Observation, observed: Observed) -> Wait:
    balancer = observed.balancer
    if seen.deleted is not None:
        write = NOTHING
    else:
        verdict = pending(balancer.problem if balancer else "")
        write = condition_write(seen.service, verdict, _wording(seen))
    return Wait(balancer.check_again_in if balancer else None, write)


def _published(
    rules: Rules,
    seen: Observation,
    observed: Observed,
    mode: Mode,
    finalizer: tuple[AddFinalizer, ...],
) -> Plan:
    """Returns the end of a pass that has nothing left to change or to wait for."""
    service = _after(seen.service, finalizer)
    record = Record(record_of(observed.seen), is_new=bool(seen.applied.done))
    declared = rules.desires.annotations
    outcome = Outcome(observed.balancer, observed.members, record, declared)
    write = publication(service, outcome, rules.classes, mode, _wording(seen))
    is_new = write.ingress is not None and not published_ingress(service)
    was_ensuring = seen.note.announced is Stage.ENSURE or is_new
    is_ours = observed.balancer is not None and mode.writes
    settle = Settle(
        observed.desired,
        after=ENSURED if is_ours and was_ensuring else None,
        warning=_warning(observed) if is_ours else None,
        seconds=observed.check_again_in,
    )
    return (Publish(write), settle) if write else (settle,)


def _warning(observed: Observed) -> Event | None:
    if not observed.members:
        return UNAVAILABLE
    if observed.without_effect:
        return Event(Reason.NO_EFFECT, "; ".join(observed.without_effect))
    return None


def _foreseen(
    rules: Rules, seen: Observation, mode: Mode, finalizer: tuple[AddFinalizer, ...]
) -> Plan:
    """Returns what is published once the changes are made and the load balancer is ready."""
    observed = seen.balancer
    if observed is None:
        return ()
    service = _after(seen.service, finalizer)
    ready = replace(
        observed.balancer or Balancer(id="", state=BalancerState.READY), state=BalancerState.READY
    )
    left = doable(observed.changes, mode)
    is_moved = any(change.effect is Effect.REPLACE for change in left)
    has_new = is_moved or not ready.ingress
    declared = None if has_new else rules.desires.annotations
    outcome = Outcome(ready, observed.members, declared=declared)
    write = publication(service, outcome, rules.classes, mode, _wording(seen))
    return (Publish(write, new_addresses=has_new),) if write or has_new else ()


def _after(service: Service, finalizer: tuple[AddFinalizer, ...]) -> Service:
    for step in finalizer:
        service = expected(service, step.write)
    return service


def _withdraw(rules: Rules, seen: Observation, mode: Mode) -> Plan:
    """The finalizer is removed after the cloud deleted what was found, or found nothing twice."""
    check = _last_check(rules, seen, mode)
    if check is not None:
        return (check,)
    declared = rules.desires.annotations
    write = release(seen.service, rules.classes, mode, seen.date, declared)
    end = RemoveFinalizer(write, _end(seen, mode))
    return _delete(seen, mode, end, is_doubtful=has_finalizer(seen.service))


def _clean_up(rules: Rules, seen: Observation, mode: Mode) -> Plan:
    """The same for a Service that no longer exists; the first question is whether that is true."""
    deleted = seen.deleted
    if deleted is not None and not is_orphan(seen.service) and not deleted.is_confirmed:
        if seen.time - deleted.since < PAUSE:
            return (CheckAgain(deleted.since + PAUSE - seen.time, is_missing=False),)
        if deleted.too_many:
            return (KeepAsOrphans(deleted.too_many),)
        return (ConfirmDeletion(),)
    check = _last_check(rules, seen, mode)
    if check is not None:
        return (check,)
    return _delete(seen, mode, Forget(_end(seen, mode)), is_doubtful=not is_orphan(seen.service))


def _last_check(rules: Rules, seen: Observation, mode: Mode) -> CheckBalancer | None:
    """Returns the check before the deletion; None if it is made, or nothing may be changed."""
    desired = rules.desires.afterwards(seen.service, mode)
    if seen.balancer is not None or desired is None:
        return None
    unnamed = replace(desired, adopts="")
    fallback = Fallback(Misconfigured, unnamed) if desired.adopts else None
    return CheckBalancer(desired, full=True, fallback=fallback)


def _delete(
    seen: Observation, mode: Mode, end: RemoveFinalizer | Forget, *, is_doubtful: bool
) -> Plan:
    observed = seen.balancer
    if observed is None:
        return (end,)
    left = doable(observed.changes, mode)
    if left and not seen.applied.is_over(left, is_busy=observed.is_busy):
        stage = Stage.CLEAN_UP if seen.deleted is not None else Stage.DELETE
        is_announced = mode is not Mode.FULL or seen.note.announced is Stage.DELETE
        before = None if is_announced else DELETING
        return ApplyChanges(left, Attempt(stage), before, is_first=not seen.applied.rounds), end
    if observed.is_unready or left:
        return _wait(seen, observed), end
    if mode is Mode.FULL and observed.balancer is not None:
        name = observed.balancer.id
        error = Unavailable(f"load balancer {name} still exists and cannot be deleted")
        return (report(seen, error),)
    if mode is Mode.FULL and (seconds := _until_last_check(seen, observed)) > 0:
        return CheckAgain(seconds, is_missing=False), end
    seconds = _until_second_check(seen) if is_doubtful and observed.balancer is None else 0.0
    return (CheckAgain(seconds, is_missing=True), end) if seconds > 0 else (end,)


def _until_last_check(seen: Observation, observed: Observed) -> float:
    """Also a pass that starts earlier, because the Service changed, waits for the last check."""
    if not observed.is_full:
        return LAST_CHECK
    accepted_at = seen.note.deletion.accepted_at
    return 0.0 if accepted_at is None else accepted_at + LAST_CHECK - seen.time


def _until_second_check(seen: Observation) -> float:
    """A cloud that shows nothing may show too little, unless it accepted the deletion before."""
    deletion = seen.note.deletion
    if deletion.accepted_at is not None:
        return 0.0
    since = seen.time if deletion.missing_since is None else deletion.missing_since
    return since + SECOND_CHECK - seen.time


def _end(seen: Observation, mode: Mode) -> Event | None:
    has_it = has_finalizer(seen.service)
    if mode is Mode.FULL:
        return DELETED if has_it or seen.note.announced is Stage.DELETE else None
    if not has_it and not seen.applied.done:
        return None
    return Event(Reason.KEPT, f"The load balancer stays in the cloud: {MANAGE} is {mode}")


def _wording(seen: Observation) -> Wording:
    return Wording(seen.date, reword=seen.note.may_reword(seen.time, asked_for(seen.service)))


def is_worth_a_pass(old: Service, new: Service) -> bool:
    """Returns whether a pass over `new` may do anything that one over `old` would not."""
    return _relevant(old) != _relevant(new)


def _relevant(service: Service) -> tuple[object, ...]:
    metadata = service.metadata
    asked = metadata.uid, asked_for(service), metadata.deletion_timestamp
    return *asked, metadata.finalizers or (), published_ingress(service), served_class(service)
