"""One candidate: when it leads, when it stops, and what it leaves behind."""

import asyncio
import logging
import math
import random

import pytest

from pileus.fence import Fenced
from pileus.runtime.leadership import Election, LeadershipLost, Times
from pileus.runtime.lease import Candidate
from pileus.runtime.settings import Durations
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.runtime.election_world import CALM, Connection, Heard, Server, WallClock, Weather

CUT_OFF = Weather(lost=1.0)


class Replica:
    """A candidate with all that it needs."""

    def __init__(self, server: Server, identity: str = "me") -> None:
        loop = asyncio.get_running_loop()
        self.registry = MetricRegistry()
        self.connection = Connection(server, random.Random(1))
        self.events = Heard()
        self.asleep = 0.0
        self.election = Election(
            Candidate("kube-system", "ccm", identity, Durations()),
            self.connection,
            random=random.Random(2),
            metrics=Metrics(self.registry),
            events=self.events,
            times=Times(WallClock(), lambda: loop.time() + self.asleep),
        )

    def value(self, name: str) -> float | None:
        return self.registry.value(name, {"name": "ccm"})

    def is_open(self) -> bool:
        try:
            self.election.fence.check()
        except Fenced:
            return False
        return True


async def lead_until_lost(replica: Replica) -> float:
    """Lead for as long as it lasts; return when the body was cancelled."""
    cancelled = 0.0
    try:
        async with replica.election.leading():
            try:
                await asyncio.sleep(10_000)
            finally:
                cancelled = asyncio.get_running_loop().time()
                assert not replica.is_open()
    except LeadershipLost:
        return cancelled
    raise AssertionError("never lost")


async def test_an_absent_lease_is_created_and_released_after_the_body(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    server = Server()
    replica = Replica(server)
    assert not replica.is_open()

    async with replica.election.leading():
        assert replica.is_open()
        assert server.spec["holderIdentity"] == "me"
        assert replica.value("leader_election_master_status") == 1
        await asyncio.sleep(60)
        assert replica.is_open()

    assert not replica.is_open()
    assert server.spec["holderIdentity"] == ""
    assert server.spec["leaseDurationSeconds"] == 1
    assert replica.value("leader_election_master_status") == 0
    assert replica.events.messages == [
        "Normal LeaderElection: me became leader",
        "Normal LeaderElection: me stopped leading",
    ]
    assert [(about.kind, about.namespace, about.name) for about in replica.events.about] == [
        ("Lease", "kube-system", "ccm")
    ] * 2
    lines = [record.message for record in caplog.records]
    assert lines[0] == "attempting to acquire leader lease"
    assert "successfully acquired lease" in lines


async def test_a_leader_in_fair_weather_writes_every_retry_period_and_reads_nothing() -> None:
    server = Server()
    replica = Replica(server)

    async with replica.election.leading():
        del server.requests[:]
        await asyncio.sleep(60)

    assert set(server.requests) == {"PUT"}
    assert 25 <= len(server.requests) <= 31
    assert replica.value("leader_election_slowpath_total") == 0


async def test_a_stand_by_takes_over_within_seconds_of_a_clean_stop() -> None:
    server = Server()
    first, second = Replica(server, "first"), Replica(server, "second")
    loop = asyncio.get_running_loop()

    async with asyncio.TaskGroup() as group:
        async with first.election.leading():
            waiting = group.create_task(lead_for(second, 1))
            await asyncio.sleep(30)
        stopped = loop.time()
    began = waiting.result()

    assert 0 < began - stopped <= 4.5
    assert server.spec["leaseTransitions"] == 1
    assert second.value("pileus_lease_transitions") == 1


async def test_a_stand_by_that_watches_takes_over_at_once_after_a_clean_stop() -> None:
    server = Server()
    first, second = Replica(server, "first"), Replica(server, "second")
    second.connection.has_watch = True
    loop = asyncio.get_running_loop()

    async with asyncio.TaskGroup() as group:
        async with first.election.leading():
            waiting = group.create_task(lead_for(second, 1))
            await asyncio.sleep(30)
        stopped = loop.time()

    assert 0 < waiting.result() - stopped <= 0.2


async def test_a_stand_by_that_watches_takes_over_as_soon_as_the_lease_expires() -> None:
    server = Server()
    first, second = Replica(server, "first"), Replica(server, "second")
    second.connection.has_watch = True

    async with asyncio.TaskGroup() as group, first.election.leading():
        waiting = group.create_task(lead_for(second, 1))
        await asyncio.sleep(31)
        first.connection.weather = CUT_OFF  # its release is lost: it might as well be killed
        killed = asyncio.get_running_loop().time()

    assert Durations().lease - Durations().retry <= waiting.result() - killed <= 15.2


async def test_a_bug_in_the_watch_does_not_end_a_stand_by() -> None:
    server = Server()
    first, second = Replica(server, "first"), Replica(server, "second")
    second.connection.failure = RuntimeError("a bug")

    async with asyncio.TaskGroup() as group:
        async with first.election.leading():
            waiting = group.create_task(lead_for(second, 1))
            await asyncio.sleep(30)
        stopped = asyncio.get_running_loop().time()

    assert 0 < waiting.result() - stopped <= 4.5


async def test_a_lease_that_others_keep_changing_is_read_as_often_and_not_taken() -> None:
    server = Server()
    leader, standby = Replica(server, "leader"), Replica(server, "standby")
    standby.connection.has_watch = True

    async with asyncio.TaskGroup() as group:
        async with leader.election.leading():
            waiting = group.create_task(lead_for(standby, 1))
            await asyncio.sleep(60)
            reads = server.requests.count("GET")
            assert not standby.is_open()
        await waiting

    assert reads <= 2 + 60 / Durations().retry * 1.1


async def test_a_stand_by_that_watches_does_not_wake_itself_if_answers_to_its_writes_are_lost() -> (
    None
):
    server = Server()
    replica = Replica(server)
    replica.connection.has_watch = True
    replica.connection.is_unheard = True

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(lead_for(replica, 1))
        await asyncio.sleep(60)
        tries = len(server.requests)
        replica.connection.is_unheard = False
        await waiting

    assert 10 < tries <= 2 * (60 / Durations().retry + 1)


async def test_a_lease_that_cannot_be_read_is_not_watched() -> None:
    server = Server()
    replica = Replica(server)
    replica.connection.weather = Weather(refused=1.0)

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(lead_for(replica, 1))
        await asyncio.sleep(60)
        watches = replica.connection.watches
        replica.connection.weather = CALM
        await waiting

    assert watches == 0


async def test_every_candidate_knows_how_often_the_lease_changed_hands() -> None:
    server = Server()
    leader, standby = Replica(server, "leader"), Replica(server, "standby")
    unknown = standby.value("pileus_lease_transitions")
    assert unknown is not None
    assert math.isnan(unknown)
    async with asyncio.TaskGroup() as group:
        async with leader.election.leading():
            waiting = group.create_task(lead_for(standby, 1))
            await asyncio.sleep(5)
            known = [each.value("pileus_lease_transitions") for each in (leader, standby)]
        await waiting

    assert known == [0, 0]


async def lead_for(replica: Replica, seconds: float) -> float:
    async with replica.election.leading():
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
    return began


async def test_a_dead_holder_is_waited_out_by_the_local_clock() -> None:
    server = Server()
    dead = Replica(server, "dead")
    async with dead.election.leading():
        dead.connection.weather = CUT_OFF
    assert server.spec["holderIdentity"] == "dead"
    start = asyncio.get_running_loop().time()

    began = await lead_for(Replica(server), 1)

    assert 15 < began - start <= 15 + 4.5 + 1


async def test_when_cut_off_the_fence_closes_a_renew_deadline_after_the_last_renewal_left() -> None:
    server = Server()
    replica = Replica(server)
    loop = asyncio.get_running_loop()

    async with asyncio.TaskGroup() as group:
        leading = group.create_task(lead_until_lost(replica))
        await asyncio.sleep(1)
        replica.connection.weather = CUT_OFF
    renewed = float(str(server.spec["renewTime"])[-10:-1])  # seconds, as all this takes < 60

    assert leading.result() == pytest.approx(renewed + 10)
    assert loop.time() < renewed + 11


async def test_the_fence_counts_from_before_a_slow_renewal_was_sent() -> None:
    server = Server()
    replica = Replica(server)
    async with replica.election.leading():
        while replica.election.fence.age() < 1.9:
            await asyncio.sleep(0.01)
        replica.connection.weather = Weather(latency=1.0)
        ages: list[float] = []
        for _ in range(400):
            await asyncio.sleep(0.01)
            ages.append(replica.election.fence.age())

    renewals = [now for last, now in zip([0.0, *ages], ages, strict=False) if now < last]
    assert renewals
    assert min(renewals) > 0.1


async def test_a_stolen_lease_is_lost_at_once() -> None:
    server = Server()
    replica = Replica(server)
    loop = asyncio.get_running_loop()

    async with asyncio.TaskGroup() as group:
        leading = group.create_task(lead_until_lost(replica))
        await asyncio.sleep(5)
        server.edit(holderIdentity="thief")
        stolen = loop.time()

    assert leading.result() - stolen < 2.5
    assert server.spec["holderIdentity"] == "thief"
    assert replica.value("leader_election_master_status") == 0


async def test_a_lease_that_was_stolen_just_before_the_end_is_not_released() -> None:
    server = Server()
    replica = Replica(server)

    async with replica.election.leading():
        server.edit(holderIdentity="thief")

    assert server.spec["holderIdentity"] == "thief"


async def test_a_refused_renewal_is_followed_by_a_read_and_another_try() -> None:
    server = Server()
    replica = Replica(server)

    async with replica.election.leading():
        server.edit(somethingNew=1)
        await asyncio.sleep(5)
        assert replica.is_open()
        assert server.spec["somethingNew"] == 1

    assert replica.value("leader_election_slowpath_total") == 1


async def test_after_sleeping_too_long_the_machine_writes_nothing_and_loses() -> None:
    server = Server()
    replica = Replica(server)

    async with asyncio.TaskGroup() as group:
        group.create_task(lead_until_lost(replica))
        await asyncio.sleep(5)
        del server.requests[:]
        replica.asleep = 10.0
        assert not replica.is_open()

    assert server.requests == []


async def test_the_lease_is_kept_while_the_body_cleans_up_after_a_cancellation() -> None:
    server = Server()
    replica = Replica(server)
    open_at_the_end: list[bool] = []

    async def clean_up_slowly() -> None:
        async with replica.election.leading():
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(20)
                open_at_the_end.append(replica.is_open())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(clean_up_slowly())
        await asyncio.sleep(5)
        task.cancel()

    assert open_at_the_end == [True]
    assert server.spec["holderIdentity"] == ""


async def test_an_error_of_the_body_comes_out_as_it_is_and_the_lease_is_released() -> None:
    server = Server()
    error = RuntimeError("no such provider")

    with pytest.raises(RuntimeError) as caught:
        async with Replica(server).election.leading():
            raise error from KeyError("x")

    assert caught.value is error
    assert isinstance(error.__cause__, KeyError)
    assert server.spec["holderIdentity"] == ""


async def test_a_renewal_cut_short_by_the_end_does_not_keep_the_lease_from_being_released() -> None:
    server = Server()
    replica = Replica(server)

    async with replica.election.leading():
        replica.connection.weather = Weather(latency=0.2)
        puts = server.requests.count("PUT")
        while server.requests.count("PUT") == puts:
            await asyncio.sleep(0.001)

    assert server.spec["holderIdentity"] == ""


async def test_a_deleted_lease_is_made_again_by_its_holder() -> None:
    server = Server()
    replica = Replica(server)

    async with replica.election.leading():
        server.lease = None
        await asyncio.sleep(5)
        assert replica.is_open()
        assert server.spec["holderIdentity"] == "me"


async def test_who_saw_a_lease_held_waits_it_out_even_if_it_is_deleted() -> None:
    server = Server()
    holder, stand_by = Replica(server, "holder"), Replica(server, "stand-by")

    async with asyncio.TaskGroup() as group:
        lost = group.create_task(lead_until_lost(holder))
        await asyncio.sleep(1)
        began = group.create_task(lead_for(stand_by, 1))
        await asyncio.sleep(5)
        holder.connection.weather = CUT_OFF
        server.lease = None

    assert lost.result() < began.result()


async def test_a_leader_that_does_not_renew_is_ill_but_a_stand_by_never_is() -> None:
    server = Server()
    replica = Replica(server)
    assert replica.election.health() is None

    async with replica.election.leading():
        replica.asleep = 35.5
        told = replica.election.health()
        replica.asleep = 0.0

    assert told == "failed election to renew leadership on lease ccm"
    assert replica.election.health() is None


async def test_a_lost_lease_fails_the_health_check_while_the_body_is_still_ending() -> None:
    server = Server()
    replica = Replica(server)
    told: list[str | None] = []
    replica.election.when_lost = lambda: told.append("called")

    async def lead() -> None:
        async with replica.election.leading():
            try:
                await asyncio.sleep(600)
            finally:
                told.append(replica.election.health())

    task = asyncio.create_task(lead())
    await asyncio.sleep(1)
    replica.connection.weather = CUT_OFF
    await asyncio.wait([task])

    assert isinstance(task.exception(), LeadershipLost)
    assert told[0] == "called"
    assert "lost lease ccm" in str(told[1])


async def test_a_candidate_goes_on_trying_while_the_server_is_down() -> None:
    server = Server()
    replica = Replica(server)
    replica.connection.weather = Weather(refused=1.0)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(lead_for(replica, 1))
        await asyncio.sleep(600)
        assert not replica.is_open()
        replica.connection.weather = CALM

    assert 600 < task.result() < 605


async def test_durations_that_cannot_work_are_refused() -> None:
    candidate = Candidate("kube-system", "ccm", "me", Durations(lease=5))

    with pytest.raises(ValueError, match="lease-duration must be greater than"):
        Election(
            candidate,
            Connection(Server(), random.Random(1)),
            random=random.Random(1),
            metrics=Metrics(MetricRegistry()),
            events=Heard(),
        )
