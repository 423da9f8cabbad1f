"""From a seed to a schedule: always the same, and each item independent of the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.simulation.kinds import DeedKind, FaultKind, Place
from pileus.simulation.scenario import SCENARIOS
from pileus.simulation.schedule import LONGEST_LIE, Spell, draw
from pileus.simulation.weather import Weather

seeds = st.integers(min_value=0, max_value=1 << 40)


@given(seeds, st.sampled_from(sorted(SCENARIOS)))
def test_the_same_seed_draws_the_same_schedule(seed: int, name: str):
    assert draw(seed, SCENARIOS[name]) == draw(seed, SCENARIOS[name])


@given(seeds, st.sampled_from(sorted(SCENARIOS)))
def test_everything_happens_in_order_and_before_the_end(seed: int, name: str):
    schedule = draw(seed, SCENARIOS[name])

    moments = [item.at for item in schedule.items]
    assert moments == sorted(moments)
    assert [item.number for item in schedule.items] == list(range(1, len(moments) + 1))
    assert all(0 <= at <= schedule.seconds for at in moments)
    assert all(one.until <= schedule.seconds for one in schedule.items if isinstance(one, Spell))


@given(seeds)
def test_the_cloud_lies_once_and_for_less_than_the_grace(seed: int):
    items = draw(seed, SCENARIOS["cloud"]).items

    lies = [one for one in items if one.kind is FaultKind.CLOUD_EMPTY and isinstance(one, Spell)]
    assert len(lies) <= 1
    assert all(one.until - one.at <= LONGEST_LIE + 0.01 for one in lies)


def test_what_is_left_out_does_not_change_the_rest():
    schedule = draw(7, SCENARIOS["mixed"])
    kept = [item.number for item in schedule.items][::2]

    smaller = schedule.only(kept)

    assert list(smaller.items) == [item for item in schedule.items if item.number in kept]


@pytest.mark.parametrize("kind", [*DeedKind, *FaultKind])
def test_every_kind_happens_in_the_mixed_scenario(kind: DeedKind | FaultKind):
    mixed, replaced = SCENARIOS["mixed"], SCENARIOS["replaced"]
    aimed = {DeedKind.OBJECT_AGAIN}

    assert kind in ({*replaced.deeds} if kind in aimed else {*mixed.deeds, *mixed.faults})


def test_a_spell_draws_from_its_own_stream_of_chance():
    first = Spell(number=1, at=0, until=9, kind=FaultKind.API_LOST, rate=0.5, seconds=1)
    second = Spell(number=2, at=0, until=9, kind=FaultKind.WATCH_CUT, rate=0.5, seconds=1)
    alone = Weather(5, [second], lambda: 1.0)
    both = Weather(5, [first, second], lambda: 1.0)

    for _ in range(20):
        both.strike(Place.API, "someone")

    assert [alone.strike(Place.WATCH, "x") for _ in range(20)] == [
        both.strike(Place.WATCH, "x") for _ in range(20)
    ]
