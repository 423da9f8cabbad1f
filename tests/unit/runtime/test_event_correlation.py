"""Events are counted, folded and limited."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.model.core_v1 import ObjectReference
from pileus.runtime.events import BURST, FOLDED_PREFIX, Correlator, CountedEvent, Occurrence

NODE = ObjectReference(kind="Node", name="n1", uid="u1", api_version="v1")
START = datetime(2026, 1, 1, tzinfo=UTC)


def happening(message: str, seconds: float = 0.0, about: ObjectReference = NODE) -> Occurrence:
    return Occurrence(about, "Warning", "Failed", message, START + timedelta(seconds=seconds))


def test_a_new_event_is_named_after_its_object_and_moment() -> None:
    tally = Correlator().count(happening("oops"))

    assert tally is not None
    assert tally.count == 1
    assert tally.name == f"n1.{int(START.timestamp()) * 10**9:x}"


def test_the_same_event_is_counted_under_the_same_name() -> None:
    correlator = Correlator()

    first, second = (correlator.count(happening("oops", at)) for at in (0, 60))

    assert first is not None
    assert second is not None
    assert second.name == first.name
    assert (second.count, second.first) == (2, START)
    assert second.occurrence.at == START + timedelta(seconds=60)


def test_two_events_of_the_same_moment_have_different_names() -> None:
    correlator = Correlator()

    tallies = [correlator.count(happening(message)) for message in ("a", "b", "c")]

    assert len({tally.name for tally in tallies if tally}) == 3


def test_many_similar_events_are_folded_into_one() -> None:
    correlator = Correlator()

    tallies = [correlator.count(happening(f"took {n} s", n)) for n in range(15)]

    shown = [tally for tally in tallies if tally is not None]
    assert [tally.count for tally in shown] == [1] * 10 + [2, 3, 4, 5, 6]
    assert shown[-1].occurrence.message == f"{FOLDED_PREFIX}took 14 s"
    assert len({tally.name for tally in shown}) == 10


@pytest.mark.parametrize(("pause", "folded"), [(599, True), (601, False)])
def test_similar_events_are_folded_until_ten_minutes_are_quiet(pause: float, folded: bool) -> None:
    correlator = Correlator()
    for n in range(12):
        correlator.count(happening(f"took {n} s"))

    tally = correlator.count(happening("another", pause))

    assert tally is not None
    assert tally.occurrence.message.startswith(FOLDED_PREFIX) is folded


def test_an_object_gets_a_burst_of_events_then_one_every_five_minutes() -> None:
    correlator = Correlator()

    shown = [correlator.count(happening("oops", n)) for n in range(100)]
    later = [correlator.count(happening("oops", 100 + 150 * n)) for n in range(5)]

    assert [tally is not None for tally in shown] == [True] * BURST + [False] * 75
    assert [tally is not None for tally in later] == [False, False, True, False, True]
    assert later[-1] is not None
    assert later[-1].count == 105
    assert correlator.count(happening("oops", 700, replace_name("n2"))) is not None


def replace_name(name: str) -> ObjectReference:
    return ObjectReference(kind="Node", name=name, uid=name, api_version="v1")


@given(st.lists(st.integers(0, 50), max_size=300))
def test_memory_is_bounded_whatever_happens(names: list[int]) -> None:
    correlator = Correlator(size=7)

    for n, name in enumerate(names):
        tally = correlator.count(happening(f"m{n % 3}", n, replace_name(f"n{name}")))
        assert tally is None or isinstance(tally, CountedEvent)

    for memory in (correlator._buckets, correlator._similar, correlator._counted):
        assert len(memory) <= 7
