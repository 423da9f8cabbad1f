"""The guard as a pure machine: whatever the cloud says, in whatever order, it keeps its word."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.controllers.lifecycle.guard import Guard, Report, Share, Standing, Subject
from pileus.controllers.lifecycle.settings import Rules

RULES = Rules(grace=30, fraction=0.2, window=600)


def subject(number: int, provider_id: str = "") -> Subject:
    return Subject(f"uid-{number}", provider_id, None)


def uids(count: int) -> frozenset[str]:
    return frozenset(f"uid-{number}" for number in range(count))


def look(
    guard: Guard,
    at: float,
    *gone: int,
    back: tuple[int, ...] = (),
    nodes: int = 10,
    took: float = 0,
) -> Guard:
    """The guard after a look in which the cloud said so of those, and the opposite of `back`."""
    reports = [Report(subject(n), holds=True) for n in gone]
    reports += [Report(subject(n), holds=False) for n in back]
    return guard.recorded(reports, began=at, ended=at + took, nodes=uids(nodes))


def test_defect_8_one_look_is_never_enough() -> None:
    guard = look(Guard(rules=RULES), 0, 1)

    assert guard.standing(subject(1)) is Standing.WAITING
    assert guard.standing(subject(2)) is Standing.CLEAR


def test_a_case_is_about_one_spell_of_being_not_ready() -> None:
    guard = look(Guard(rules=RULES), 0, 1)

    assert guard.standing(subject(1, "fake://other")) is Standing.CLEAR


def test_a_second_look_a_grace_after_the_first_confirms_it() -> None:
    guard = look(Guard(rules=RULES), 0, 1)

    early, late = look(guard, 29.9, 1), look(guard, 30, 1)

    assert early.standing(subject(1)) is Standing.WAITING
    assert late.standing(subject(1)) is Standing.CONFIRMED


def test_the_grace_lies_between_the_end_of_the_first_look_and_the_beginning_of_the_second() -> None:
    guard = look(Guard(rules=RULES), 0, 1, took=20)

    assert look(guard, 40, 1, took=60).standing(subject(1)) is Standing.WAITING
    assert look(guard, 50, 1).standing(subject(1)) is Standing.CONFIRMED


def test_a_look_that_finds_the_machine_ends_the_case() -> None:
    guard = look(look(Guard(rules=RULES), 0, 1), 10, back=(1,))

    assert guard.standing(subject(1)) is Standing.CLEAR
    assert look(guard, 30, 1).standing(subject(1)) is Standing.WAITING


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Subject("uid-1", "fake://other", None), id="another machine"),
        pytest.param(Subject("uid-9", "", None), id="registered anew"),
    ],
)
def test_what_was_said_of_a_node_is_not_said_of_another_one(other: Subject) -> None:
    guard = look(Guard(rules=RULES), 0, 1)

    guard = guard.recorded([Report(other, holds=True)], began=60, ended=60, nodes=uids(10))

    assert guard.standing(other) is Standing.WAITING


def test_nodes_that_are_ready_or_away_are_forgotten() -> None:
    guard = look(Guard(rules=RULES), 0, 1, 2).retained([subject(2)])

    assert guard.suspects.keys() == {"uid-2"}
    assert guard.retained([subject(2, "fake://other")]).suspects == {}
    assert guard.without("uid-2").suspects == {}


@pytest.mark.parametrize(
    ("nodes", "limit"), [(0, 1), (1, 1), (4, 1), (5, 1), (9, 1), (10, 2), (15, 3), (1000, 200)]
)
def test_at_most_a_fifth_may_go_and_one_always_may(nodes: int, limit: int) -> None:
    assert RULES.limit(nodes) == limit


def test_the_fraction_is_exact_where_floats_are_not() -> None:
    assert Rules(fraction=0.07).limit(100) == 7
    assert Rules(fraction=0.29).limit(100) == 29
    assert Rules(fraction=1.0).limit(3) == 3


def test_trap_7_when_too_many_are_gone_none_may_go_however_long_it_lasts() -> None:
    guard = Guard(rules=RULES)
    for minute in range(300):
        guard = look(guard, 60.0 * minute, *range(10))

        assert all(guard.standing(subject(n)) is not Standing.CONFIRMED for n in range(10))
    assert guard.is_open
    assert guard.kept_back == 10
    assert guard.share == Share(10, 2, 10)


def test_trap_7_what_was_deleted_counts_until_the_window_has_passed() -> None:
    guard = look(look(Guard(rules=RULES), 0, 1, 2), 30, 1, 2)
    guard = guard.acted_on("uid-1", 30).acted_on("uid-2", 30).without("uid-1").without("uid-2")

    guard = look(look(guard, 60, 3, nodes=8), 100, 3, nodes=8)
    assert guard.standing(subject(3)) is Standing.TOO_MANY

    guard = guard.recounted(630, uids(8))
    assert guard.standing(subject(3)) is Standing.WAITING, "it has to be confirmed anew"
    assert look(guard, 660, 3, nodes=8).standing(subject(3)) is Standing.CONFIRMED


def test_those_that_were_deleted_lately_were_nodes_as_well() -> None:
    guard = Guard(rules=RULES).acted_on("uid-1", 30).acted_on("uid-2", 30)

    guard = guard.recounted(40, uids(10) - {"uid-1", "uid-2"})

    assert guard.share == Share(affected=2, limit=2, nodes=10)


def test_when_others_come_back_whoever_is_left_has_to_be_confirmed_anew() -> None:
    guard = look(look(Guard(rules=RULES), 0, 1, 2, 3), 40, 1, 2, 3)
    assert guard.standing(subject(1)) is Standing.TOO_MANY

    guard = look(guard, 50, 1, back=(2, 3))

    assert not guard.is_open
    assert guard.standing(subject(1)) is Standing.WAITING
    assert look(guard, 79, 1).standing(subject(1)) is Standing.WAITING
    assert look(guard, 80, 1).standing(subject(1)) is Standing.CONFIRMED


def test_what_a_human_approved_is_not_limited_and_does_not_count() -> None:
    guard = look(look(Guard(rules=RULES), 0, 1, 2, 3), 40, 1, 2, 3)

    approved = Report(subject(1), holds=True, counts=False)
    guard = guard.recorded([approved], began=45, ended=45, nodes=uids(10))

    assert guard.standing(subject(1)) is Standing.CONFIRMED
    assert guard.share.affected == 2


def test_a_failed_deletion_is_counted_once() -> None:
    guard = look(look(Guard(rules=RULES), 0, 1, 2), 30, 1, 2).acted_on("uid-1", 31)

    guard = look(guard, 40, 1, 2)

    assert guard.share.affected == 2
    assert guard.standing(subject(1)) is Standing.CONFIRMED


@dataclass(frozen=True)
class Happening:
    """Seconds pass; then the cloud answers a look at some nodes: True is gone, None no answer."""

    after: float
    answers: dict[int, bool | None]
    took: float = 0.0


@dataclass
class History:
    """A driver that deletes whatever it may, and an account of what was said."""

    guard: Guard
    nodes: set[int]
    now: float = 0.0
    first: dict[int, float] = field(default_factory=dict[int, float])
    deleted: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])

    def live(self, happening: Happening) -> None:
        began = self.now + happening.after
        self.now = began + happening.took
        answers = {n: a for n, a in happening.answers.items() if n in self.nodes and a is not None}
        reports = [Report(subject(n), holds=gone) for n, gone in answers.items()]
        before = frozenset(f"uid-{n}" for n in self.nodes)
        self.guard = self.guard.recorded(reports, began=began, ended=self.now, nodes=before)
        for n, gone in answers.items():
            if not gone:
                self.first.pop(n, None)
            self.first.setdefault(n, self.now) if gone else None
        for n in [n for n, gone in answers.items() if gone]:
            if self.guard.standing(subject(n)) is Standing.CONFIRMED:
                self.delete(n, began)

    def delete(self, n: int, began: float) -> None:
        assert began - self.first[n] >= RULES.grace, "two looks that agree, a grace apart"
        at_once = len(self.first)
        lately = sum(self.now - when < RULES.window for when, _ in self.deleted)
        everyone = len(self.nodes) + lately
        assert lately + at_once <= RULES.limit(everyone), "too many at once"
        self.guard = self.guard.acted_on(f"uid-{n}", self.now).without(f"uid-{n}")
        self.deleted.append((self.now, n))
        self.nodes.remove(n)
        del self.first[n]


answers = st.dictionaries(st.integers(0, 14), st.sampled_from([True, True, True, False, None]))
happenings = st.builds(
    Happening,
    after=st.sampled_from([0.0, 1.0, 10.0, 30.0, 31.0, 300.0, 601.0]),
    answers=answers,
    took=st.sampled_from([0.0, 0.0, 5.0, 40.0]),
)


@given(st.lists(happenings, max_size=30), st.integers(1, 15))
def test_trap_7_no_history_deletes_unconfirmed_nodes_or_too_many(
    history: list[Happening], size: int
) -> None:
    story = History(Guard(rules=RULES), set(range(size)))

    for happening in history:
        story.live(happening)


@given(st.lists(happenings, max_size=20), st.integers(0, 14))
def test_trap_1_no_answer_changes_nothing(history: list[Happening], asked: int) -> None:
    told, silent = Guard(rules=RULES), Guard(rules=RULES)
    now = 0.0
    for each in history:
        now += each.after
        said = [Report(subject(n), holds=a) for n, a in each.answers.items() if a is not None]
        told = told.recorded(said, began=now, ended=now, nodes=uids(15))
        silent = silent.recorded(said, began=now, ended=now, nodes=uids(15))

        silent = silent.recorded([], began=now, ended=now, nodes=uids(15))

    assert silent.standing(subject(asked)) is told.standing(subject(asked))


@given(st.lists(happenings, min_size=1, max_size=20))
def test_who_is_always_found_is_never_suspected(history: list[Happening]) -> None:
    guard, now = Guard(rules=RULES), 0.0
    for each in history:
        now += each.after
        said = [Report(subject(n), holds=bool(a)) for n, a in each.answers.items() if n]
        guard = guard.recorded(said, began=now, ended=now, nodes=uids(15))

        assert guard.standing(subject(0)) is Standing.CLEAR


def test_counting_again_without_news_changes_nothing() -> None:
    guard = look(look(Guard(rules=RULES), 0, 1), 30, 1)

    assert guard.recounted(31, uids(10)) == replace(guard, acted={})
