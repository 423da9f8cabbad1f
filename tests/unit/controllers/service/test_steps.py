"""The plan of a pass, over all observations: which steps, and in which order."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import (
    BalancerSpec,
    BalancerState,
    Effect,
    Ingress,
    Listener,
    Owner,
    Part,
    Wish,
)
from pileus.cloud.model import NodeName, NodeRef
from pileus.controllers.service.annotations import MANAGE, Classes, Mode
from pileus.controllers.service.desired import Desires
from pileus.controllers.service.lines import lines
from pileus.controllers.service.notes import Deletion, Note
from pileus.controllers.service.observation import (
    Applied,
    BalancerOperations,
    Deleted,
    Observation,
    Observed,
)
from pileus.controllers.service.plan import LAST_CHECK, Rules, plan
from pileus.controllers.service.preview import checked_plan
from pileus.controllers.service.status import FINALIZER, Finalizer, expected
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
    Publish,
    RemoveFinalizer,
    Report,
    Settle,
    Wait,
)
from pileus.kube.model.core_v1 import Service, ServicePort, ServiceSpec
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.preview import Place, Planned, Trouble
from pileus.testing.virtual_time import EPOCH
from tests.unit.controllers.service.plain import Change, Seen

RULES = Rules(Desires(cluster="c"), Classes.of("local"))
NODES = tuple(NodeRef(name=NodeName(name)) for name in "abcdef")
SPEC = BalancerSpec(
    listeners=frozenset({Listener(port=80, node_port=30080)}), members=frozenset(NODES)
)
MODES = st.sampled_from(Mode)


def service(mode: Mode = Mode.FULL, *, has_finalizer: bool = False, kind: str = "LoadBalancer"):
    return Service(
        metadata=ObjectMeta(
            name="web",
            namespace="shop",
            uid="u1",
            finalizers=(FINALIZER,) if has_finalizer else (),
            annotations={MANAGE: mode.value},
        ),
        spec=ServiceSpec(type=kind, ports=(ServicePort(port=80, node_port=30080),)),
    )


SERVICES = st.builds(
    lambda mode, has_finalizer, kind: service(mode, has_finalizer=has_finalizer, kind=kind),
    MODES,
    st.booleans(),
    st.sampled_from(["LoadBalancer", "ClusterIP"]),
)
CHANGES = st.lists(
    st.builds(
        Change,
        st.sampled_from(Effect),
        st.sampled_from(["x", "y"]),
        st.none(),
        st.sampled_from(Part),
    ),
    max_size=3,
).map(tuple)
SEEN = st.builds(
    lambda members, state: Seen(
        Owner("c", "u1"),
        spec=None if members is None else replace(SPEC, members=frozenset(NODES[:members])),
        state=state,
        ingress=(Ingress(ip="192.0.2.1"),),
    ),
    st.none() | st.integers(0, 6),
    st.sampled_from(BalancerState),
)
NOTES = st.builds(
    lambda known, kept, accepted, missing: Note(
        known=known,
        members_kept_since=kept,
        deletion=Deletion(accepted_at=accepted, missing_since=missing),
    ),
    st.booleans(),
    st.none() | st.integers(0, 100),
    st.none() | st.integers(90, 100),
    st.none() | st.integers(0, 100),
)


def observed(
    seen: Seen, changes: tuple[Change, ...], members: int, *, is_full: bool = False
) -> Observed:
    desired = RULES.desires.wish(service(), frozenset(NODES[:members]))
    assert not hasattr(desired, "problems")
    return Observed(desired, seen, seen.balancer, changes, is_full=is_full)  # type: ignore[arg-type]


OBSERVATIONS = st.builds(
    lambda it, note, seen, changes, members, confirmed, rounds, is_full: Observation(
        service=it,
        note=note,
        time=100.0,
        date=EPOCH,
        members=frozenset(NODES[:members]),
        nodes_confirmed=confirmed,
        balancer=observed(seen, changes, members, is_full=is_full),
        applied=Applied(changes if rounds else (), (), rounds),
    ),
    SERVICES,
    NOTES,
    SEEN,
    CHANGES,
    st.integers(0, 6),
    st.booleans(),
    st.integers(0, 6),
    st.booleans(),
)


def first(seen: Observation, *kinds: type) -> int | None:
    """The position of the first such step in the plan."""
    steps = plan(RULES, seen)
    return next((at for at, step in enumerate(steps) if isinstance(step, kinds)), None)


@given(OBSERVATIONS)
def test_the_finalizer_is_there_before_the_first_change(seen: Observation):
    change, finalizer = first(seen, ApplyChanges), first(seen, AddFinalizer)
    is_served = seen.service.spec is not None and seen.service.spec.type == "LoadBalancer"

    if change is not None and is_served and not seen.service.metadata.finalizers:
        assert finalizer is not None
        assert finalizer < change


@given(OBSERVATIONS)
def test_only_changes_that_the_mode_allows_are_planned(seen: Observation):
    mode = Mode((seen.service.metadata.annotations or {})[MANAGE])

    for step in plan(RULES, seen):
        if isinstance(step, ApplyChanges):
            assert mode.writes
            assert mode is Mode.FULL or all(one.part is Part.MEMBERS for one in step.changes)


@given(OBSERVATIONS)
def test_many_members_are_removed_only_after_a_second_check(seen: Observation):
    assert seen.balancer is not None
    balancer, is_served = seen.balancer.balancer, seen.service.spec
    if not is_served or is_served.type != "LoadBalancer" or balancer is None:
        return
    change, guard = first(seen, ApplyChanges), first(seen, KeepMembers, CheckNodes)
    loses_many = balancer.members is not None and seen.balancer.members * 2 < balancer.members

    if change is not None and loses_many and not seen.nodes_confirmed:
        assert guard is not None
        assert guard < change
    else:
        assert guard is None


@given(OBSERVATIONS)
def test_the_finalizer_is_removed_last_and_never_at_the_first_sight_of_nothing(seen: Observation):
    assert seen.balancer is not None
    steps, mode = plan(RULES, seen), Mode((seen.service.metadata.annotations or {})[MANAGE])
    if not any(isinstance(step, RemoveFinalizer) for step in steps):
        return
    *before, last = steps

    assert isinstance(last, RemoveFinalizer)
    accepted_at = seen.note.deletion.accepted_at
    is_empty = seen.balancer.balancer is None and accepted_at is None
    since = seen.note.deletion.missing_since
    is_late = since is not None and 100.0 - since >= 30
    if is_empty and seen.service.metadata.finalizers and mode.writes and not is_late:
        assert before, "one empty answer is not enough"
    if mode is Mode.FULL and seen.balancer.balancer is not None:
        assert before, "a load balancer is still there"
    if mode is Mode.FULL and accepted_at is not None and 100.0 - accepted_at < LAST_CHECK:
        assert before, "lists may lack for a moment what was not deleted"


@given(OBSERVATIONS)
def test_the_finalizer_is_not_removed_for_what_changes_led_to(seen: Observation):
    """They show what was found before them: a part that a list lacked for a moment is missing."""
    assert seen.balancer is not None
    if seen.balancer.is_full or (seen.service.metadata.annotations or {})[MANAGE] != Mode.FULL:
        return

    steps = plan(RULES, seen)

    assert first(seen, RemoveFinalizer) != 0
    for before, step in pairwise(steps):
        if isinstance(step, RemoveFinalizer):
            assert isinstance(before, ApplyChanges | Wait | CheckBalancer | CheckAgain)
            assert not isinstance(before, CheckBalancer) or before.full


@given(OBSERVATIONS)
def test_every_plan_ends_in_a_step_that_ends_the_pass_or_in_what_can_be_foreseen(
    seen: Observation,
):
    steps = plan(RULES, seen)
    ends = (Settle, RemoveFinalizer, Forget, Report, Publish, Wait, ApplyChanges)

    assert not steps or isinstance(steps[-1], ends)
    assert sum(isinstance(step, ApplyChanges) for step in steps) <= 1


@given(OBSERVATIONS)
def test_changes_end_after_five_rounds_when_nothing_comes_of_them_and_while_the_cloud_is_busy(
    seen: Observation,
):
    assert seen.balancer is not None
    left = seen.balancer.changes
    stalled = replace(seen, applied=Applied(left, left, 1))

    assert not any(
        isinstance(step, ApplyChanges) and step.changes == left for step in plan(RULES, stalled)
    )
    if seen.applied.rounds >= 5 or (seen.applied.rounds and seen.balancer.is_busy):
        assert first(seen, ApplyChanges) is None


@given(OBSERVATIONS)
def test_every_line_of_a_plan_is_a_step_and_every_writing_step_a_line(seen: Observation):
    steps = plan(RULES, seen)
    shown = list(lines(seen.service, steps))

    changes = [one for step in steps if isinstance(step, ApplyChanges) for one in step.changes]
    cloud = [one for one in shown if isinstance(one, Planned) and one.place is Place.CLOUD]
    assert [one.summary for one in cloud] == [one.summary for one in changes]
    writes = [
        step
        for step in steps
        if (isinstance(step, AddFinalizer | RemoveFinalizer | Wait | Report) and step.write)
        or (isinstance(step, Publish) and (step.write or step.new_addresses))
    ]
    cluster = [one for one in shown if isinstance(one, Planned) and one.place is Place.CLUSTER]
    assert len(cluster) == len(writes)
    errors = [step for step in steps if isinstance(step, Report)]
    assert len([one for one in shown if isinstance(one, Trouble)]) == len(errors)


@given(SERVICES, NOTES)
def test_nothing_is_changed_before_the_load_balancer_was_checked(it: Service, note: Note):
    seen = Observation(service=it, note=note, time=100.0, date=EPOCH, members=frozenset(NODES))

    for step in plan(RULES, seen):
        is_end = isinstance(step, RemoveFinalizer) and it.metadata.annotations != {
            MANAGE: Mode.FULL.value
        }
        assert is_end or isinstance(step, CheckBalancer | Report)


def test_the_plan_that_is_foreseen_is_the_plan_that_is_made_after_the_finalizer():
    changes = (Change(Effect.CREATE, "balancer", SPEC),)
    seen = Observation(
        service=service(),
        time=0.0,
        date=EPOCH,
        balancer=observed(Seen(Owner("c", "u1")), changes, 6),
    )

    finalizer, *rest = plan(RULES, seen)

    assert isinstance(finalizer, AddFinalizer)
    assert finalizer.write.finalizer is Finalizer.ADD
    after = replace(seen, service=expected(seen.service, finalizer.write))
    assert plan(RULES, after) == tuple(rest)


def deleted(since: float, *, too_many: int = 0, is_confirmed: bool = False) -> Observation:
    return Observation(
        service=service(has_finalizer=True),
        time=100.0,
        date=EPOCH,
        deleted=Deleted(since, too_many, is_confirmed),
    )


def test_a_deleted_service_is_cleaned_up_after_a_pause_and_a_confirmation():
    assert plan(RULES, deleted(95.0)) == (CheckAgain(5.0, is_missing=False),)
    assert plan(RULES, deleted(80.0, too_many=9)) == (KeepAsOrphans(9),)
    assert plan(RULES, deleted(80.0)) == (ConfirmDeletion(),)
    (check,) = plan(RULES, deleted(80.0, is_confirmed=True))
    assert isinstance(check, CheckBalancer)
    assert (check.desired.spec, check.full) == (None, True)


RECORD = Change(Effect.UPDATE, "tags: up to date", None, Part.RECORD)
UP_TO_DATE = Seen(
    Owner("c", "u1"), spec=SPEC, state=BalancerState.READY, ingress=(Ingress(ip="192.0.2.1"),)
)


def test_a_record_of_the_provider_is_written_without_an_event_and_is_no_drift() -> None:
    checked = observed(UP_TO_DATE, (RECORD,), len(NODES))
    seen = Observation(
        service=service(has_finalizer=True),
        note=Note(settled=checked.desired),
        time=0.0,
        date=EPOCH,
        balancer=checked,
    )

    applied = next(each for each in plan(RULES, seen) if isinstance(each, ApplyChanges))

    assert (applied.before, applied.after, applied.is_drift) == (None, None, False)


async def test_a_record_of_the_provider_is_not_part_of_what_pileus_plan_shows() -> None:
    class Checked(BalancerOperations):
        async def check(self, desired: Wish, *, full: bool) -> Observed:
            del full
            return Observed(desired, UP_TO_DATE, UP_TO_DATE.balancer, (RECORD,))

    before = Observation(
        service=service(has_finalizer=True), time=0.0, date=EPOCH, members=frozenset(NODES)
    )

    _, steps = await checked_plan(RULES, Checked(None), before)  # type: ignore[arg-type]

    assert not [each for each in steps if isinstance(each, ApplyChanges)]
    assert any(isinstance(each, Settle) for each in steps)
