"""An informer goes on, gently, whatever the server and the network do to it."""

import asyncio
from itertools import pairwise
from random import Random

import pytest

from pileus.kube.errors import Expired, Forbidden, InternalError, KubeError, Status, Unreachable
from pileus.kube.informer import InformerOptions, delay_after
from pileus.testing.scripted import (
    Answer,
    Cut,
    Lost,
    Scripted,
    Silence,
    Stream,
    event,
    listing,
    refused,
    status,
)
from tests.unit.kube.harness import QUIET, Following, end_of_list, node


@pytest.mark.parametrize(
    "expired",
    [
        refused(410, "Expired", "too old"),
        refused(410, "Gone", "too old"),
        Stream([event("ERROR", status(410, "Expired", "too old"))]),
    ],
    ids=["expired", "gone", "in-stream"],
)
async def test_an_expired_version_leads_to_a_list_and_the_difference(expired: Scripted):
    following = Following(
        Answer(200, listing([node("a", "1"), node("b", "2"), node("c", "3")], version="5")),
        expired,
        Answer(200, listing([node("a", "1"), node("b", "9"), node("d", "10")], version="12")),
        QUIET,
    )

    async with following.running(0.1):
        pass

    assert following.recorder.told == ["+a1", "+b2", "+c3", "-c", "~b9", "+d10"]
    assert following.queries == ["list", "watch 5", "list", "watch 12"]
    relists = "pileus_watch_relists_total"
    assert following.kube.sample(relists, resource="nodes", reason="start") == 1.0
    assert following.kube.sample(relists, resource="nodes", reason="expired") == 1.0


async def test_the_old_view_stays_while_a_new_list_fails():
    following = Following(
        Answer(200, listing([node("a", "1")], version="5")),
        refused(410, "Expired"),
        *[Lost()] * 3,
        Answer(200, listing([node("a", "1")], version="9")),
        QUIET,
    )

    async with following.running(0.4):
        assert len(following.informer.store) == 1
        assert following.informer.has_synced
        assert isinstance(following.informer.failure, Unreachable)
        await asyncio.sleep(30)
        assert following.informer.failure is None

    assert following.recorder.told == ["+a1"]


async def test_a_version_that_expired_during_an_outage_is_renewed_at_once_after_it():
    following = Following(
        Answer(200, listing([], version="5")),
        *[Lost()] * 6,
        refused(410, "Expired"),
        Answer(200, listing([], version="9")),
        QUIET,
    )

    async with following.running(120):
        pass

    assert following.queries[-3:] == ["watch 5", "list", "watch 9"]
    refusal_at, list_at, _ = following.kube.transport.times[-3:]
    assert list_at == refusal_at


async def test_a_version_that_expires_again_and_again_is_no_spin():
    rounds = [Answer(200, listing([], version="5")), refused(410, "Expired")] * 100
    following = Following(*rounds)

    async with following.running(300):
        assert 10 < len(following.queries) < 50


async def test_a_watch_that_ends_at_once_again_and_again_is_no_spin():
    following = Following(Answer(200, listing([], version="5")), *[Stream()] * 100)

    async with following.running(300):
        assert 10 < len(following.queries) < 50


@pytest.mark.parametrize(
    "failing",
    [Lost(), Stream([Cut()]), refused(500, "InternalError"), refused(403, "Forbidden")],
    ids=["lost", "cut", "500", "403"],
)
async def test_a_failing_watch_goes_on_from_its_version_with_growing_delays(failing: Scripted):
    following = Following(Answer(200, listing([node("a")], version="5")), *[failing] * 4, QUIET)

    async with following.running(60):
        pass

    assert following.queries == ["list", *["watch 5"] * 5]
    waits = [after - before for before, after in pairwise(following.kube.transport.times[1:])]
    for wait, usual in zip(waits, [0.5, 1, 2, 4], strict=True):
        assert usual * 0.5 <= wait <= usual * 1.5
    assert following.recorder.told == ["+a1"]


async def test_an_event_makes_failures_forgotten():
    flaky = Stream([event("BOOKMARK", node("", "5")), Cut()])
    following = Following(Answer(200, listing([], version="5")), *[flaky] * 200)

    async with following.running(30):
        assert len(following.queries) > 30


async def test_refusals_without_end_lead_to_a_new_list():
    too_large = refused(504, "Timeout", "Too large resource version")
    following = Following(
        Answer(200, listing([node("a", "500")], version="500")),
        *[too_large] * 5,
        Answer(200, listing([node("a", "3")], version="4")),
        QUIET,
    )

    async with following.running(60):
        pass

    assert following.queries == ["list", *["watch 500"] * 5, "list", "watch 4"]
    assert following.recorder.told == ["+a500", "~a3"]


async def test_a_dead_watch_is_left_after_90_seconds():
    following = Following(
        Answer(200, listing([], version="5")),
        Stream([event("ADDED", node("a", "6")), Silence()]),
        QUIET,
    )

    async with following.running(89):
        assert following.informer.age() == pytest.approx(89)
        age = following.kube.sample("pileus_watch_last_contact_seconds", resource="nodes")
        assert age == pytest.approx(89)
        await asyncio.sleep(3)
        assert following.queries == ["list", "watch 5", "watch 6"]
        assert following.informer.age() < 3


async def test_age_grows_while_the_server_is_away():
    following = Following(Answer(200, listing([], version="5")), *[Lost()] * 100)

    async with following.running(120):
        assert following.informer.age() > 110


async def test_a_server_that_asks_for_time_gets_it():
    following = Following(
        Answer(200, listing([], version="5")),
        refused(429, "TooManyRequests", retry_after=45),
        QUIET,
    )

    async with following.running(44):
        assert following.queries == ["list", "watch 5"]
        await asyncio.sleep(2)
        assert following.queries == ["list", "watch 5", "watch 5"]


@pytest.mark.parametrize(
    "failing",
    [Lost(), refused(403, "Forbidden"), Stream([event("ADDED", node("z", "1")), Cut()])],
    ids=["lost", "403", "cut"],
)
async def test_a_passing_failure_does_not_end_streaming(failing: Scripted):
    following = Following(
        failing, Stream([end_of_list("7"), Silence(60)]), QUIET, options=InformerOptions()
    )

    async with following.running(10):
        assert following.informer.has_synced

    assert following.queries == ["stream", "stream"]
    assert following.recorder.told == []


async def test_an_answer_that_is_no_list_deletes_nothing():
    following = Following(
        Answer(200, listing([node("a", "1")], version="5")),
        refused(410, "Expired"),
        Answer(200, {}),
        Answer(200, listing([node("a", "1")], version="6")),
        QUIET,
    )

    async with following.running(30):
        pass

    assert following.recorder.told == ["+a1"]
    assert following.queries == ["list", "watch 5", "list", "list", "watch 6"]


async def test_garbage_in_a_watch_leads_to_a_new_list():
    following = Following(
        Answer(200, listing([], version="5")),
        Stream([b"<html>\n"]),
        Answer(200, listing([node("a", "6")], version="6")),
        QUIET,
    )

    async with following.running(5):
        pass

    assert following.queries == ["list", "watch 5", "list", "watch 6"]


@pytest.mark.parametrize(
    ("failures", "error", "least", "most"),
    [
        (1, Expired("", 410, Status()), 0, 0),
        (2, Expired("", 410, Status()), 0.5, 1.5),
        (1, Forbidden("", 403, Status()), 0.25, 0.75),
        (1, InternalError("", 500, Status(), retry_after=7), 7, 7),
        (50, KubeError("x"), 15, 45),
        (10**6, KubeError("x"), 15, 45),
    ],
)
def test_delays(failures: int, error: KubeError, least: float, most: float):
    for seed in range(50):
        assert least <= delay_after(failures, error, Random(seed)) <= most
