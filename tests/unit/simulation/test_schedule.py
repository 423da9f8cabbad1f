"""From a seed to a schedule: always the same, and each item independent of the others."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus_lab.simulation.kinds import (
    SECOND_EDITION,
    THIRD_EDITION,
    DeedKind,
    FaultKind,
    Place,
)
from pileus_lab.simulation.scenario import SCENARIOS, first_edition, second_edition
from pileus_lab.simulation.schedule import LONGEST_LIE, Spell, Weather, draw

seeds = st.integers(min_value=0, max_value=1 << 40)
FIRST = (
    "mixed",
    "calm",
    "nodes",
    "services",
    "leaders",
    "watches",
    "replaced",
    "cloud",
    "lies",
    "classes",
    "keys",
    "dual-stack",
)
"""The scenarios that the first edition had."""


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
    aimed: dict[DeedKind | FaultKind, str] = {
        DeedKind.OBJECT_AGAIN: "replaced",
        DeedKind.OBJECT_TOUCHED: "touched",
        DeedKind.STRANGER_SHARES: "strangers",
        DeedKind.STRANGER_ADDRESS: "tenants",
        DeedKind.STRANGER_TENANT: "tenants",
        DeedKind.STRANGER_TEXT: "tenants",
        DeedKind.STRANGER_NODE: "strangers",
        DeedKind.STRANGER_MOVES_ADDRESS: "strangers",
        DeedKind.STRANGER_TWIN: "strangers",
        DeedKind.STRANGER_ASKS: "tenants",
        DeedKind.NEIGHBOUR_SHARES: "sharing",
        DeedKind.NEIGHBOURS_LEAVE: "sharing",
        DeedKind.LIST_OVERLOOKED: "overlooked",
    }
    nodes = ("volume-", "plugin-", "host-", FaultKind.CLOUD_IGNORED)
    aimed |= {kind: "volumes" for kind in DeedKind if kind.startswith(("claim-", "pod-"))}
    aimed |= {one: "volume-nodes" for one in (*DeedKind, *FaultKind) if one.startswith(nodes)}
    aimed |= {
        DeedKind.CLAIM_FORGED: "volume-writers",
        DeedKind.ATTACHMENT_SECOND: "volume-writers",
        DeedKind.POD_READS: "volume-writers",
        DeedKind.VOLUME_WRITTEN: "volume-writers",
        DeedKind.HOST_STALE_MOUNT: "volume-writers",
        DeedKind.PLUGIN_SLOW: "volume-writers",
        FaultKind.CLOUD_MIXED: "volume-writers",
        FaultKind.API_GARBLED: "volume-writers",
    }
    scenario = SCENARIOS[aimed.get(kind, "mixed")]

    assert kind in {*scenario.deeds, *scenario.faults}


@given(seeds, st.sampled_from(sorted(SCENARIOS)))
def test_the_first_edition_has_nothing_that_was_added_later(seed: int, name: str):
    schedule = draw(seed, first_edition(SCENARIOS[name]))

    assert not {item.kind for item in schedule.items} & (SECOND_EDITION | THIRD_EDITION)
    assert not schedule.kubelets_identify
    assert not schedule.machines_have_both


def test_the_first_edition_draws_what_it_always_drew():
    """A seed of a regression means nothing if it draws another schedule than it did."""
    schedules = [draw(seed, first_edition(SCENARIOS[name])) for name in FIRST for seed in range(30)]
    facts = [
        (one.setup.name, one.replicas, one.machines, one.services, *map(str, one.items))
        for one in schedules
    ]

    assert hashlib.sha256(repr(facts).encode()).hexdigest()[:16] == "7c407e095af2e3db"


def test_the_second_edition_draws_what_it_always_drew():
    schedules = [draw(seed, second_edition(SCENARIOS["strangers"])) for seed in range(30)]
    facts = [(one.setup.name, *map(str, one.items)) for one in schedules]

    assert hashlib.sha256(repr(facts).encode()).hexdigest()[:16] == "c56c43753a5ca5f0"


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
