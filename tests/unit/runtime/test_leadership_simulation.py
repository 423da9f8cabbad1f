"""Three candidates, one lease, and everything that can go wrong at once.

Two fences are never open at the same instant; when the faults end, somebody leads soon.
"""

import asyncio
import logging
import random

import pytest

from pileus.fence import Fenced
from pileus.runtime.leadership import Election, LeadershipLost, Times
from pileus.runtime.lease import Candidate
from pileus.runtime.settings import Durations
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.unit.runtime.election_world import CALM, Connection, Heard, Server, WallClock, Weather
from tests.unit.runtime.frozen import Gate, in_process, task_factory

FAULTS_LAST = 300.0
LEADS_WITHIN = 40.0
# The lease is only just longer than the renew deadline, so that a small mistake shows.
DURATIONS = Durations(lease=11, renew_deadline=10, retry=2)
WATCHES = 0.7
"""The share of processes that can watch the lease; the others only poll it."""
DRIFT = 0.02
"""By how much the clock of a process may be fast or slow: (1 + d)² / (1 - d)² < 11 / 10."""


class Process:
    """One replica that is started again whenever it ends, as the kubelet would do."""

    def __init__(self, world: "World", number: int) -> None:
        self.gate = Gate()
        self._world = world
        self._number = number
        self._random = random.Random(world.random.random())
        self.connection = Connection(world.server, self._random)
        self.connection.has_watch = self._random.random() < WATCHES
        self.wall = WallClock()
        self._rate = self._random.uniform(1 - DRIFT, 1 + DRIFT)
        self._start = self._random.uniform(0, 1000)
        self.election: Election | None = None

    def is_open(self) -> bool:
        try:
            if self.election is None:
                return False
            self.election.fence.check()
        except Fenced:
            return False
        return True

    async def run(self) -> None:
        life = 0
        while True:
            life += 1
            self.election = self._new_election(f"host-{self._number}_{life}")
            try:
                async with self.election.leading():
                    await self._lead()
            except LeadershipLost:
                self._world.losses += 1
            await asyncio.sleep(self._random.uniform(0.5, 5))

    async def _lead(self) -> None:
        while self._world.is_calm or self._random.random() > 0.03:
            if self.is_open():
                self._world.write()
            await asyncio.sleep(1)

    def _new_election(self, identity: str) -> Election:
        loop = asyncio.get_running_loop()
        election = Election(
            Candidate("kube-system", "ccm", identity, DURATIONS),
            self.connection,
            random=self._random,
            metrics=Metrics(MetricRegistry()),
            events=Heard(),
            times=Times(self.wall, lambda: self._start + loop.time() * self._rate),
        )
        opened = election.fence.open_from

        def open_from(sent: float) -> None:
            opened(sent)
            self._world.assert_at_most_one_is_open()

        election.fence.open_from = open_from
        return election


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.server = Server()
        self.processes = [Process(self, number) for number in range(3)]
        self.is_calm = False
        self.writes = 0
        self.losses = 0

    def assert_at_most_one_is_open(self) -> None:
        """Enough when a fence opens: two that are open together began so when one of them did."""
        assert sum(process.is_open() for process in self.processes) <= 1

    def write(self) -> None:
        self.writes += 1
        self.assert_at_most_one_is_open()

    async def run(self) -> float:
        """Let faults happen, then none; return after how long somebody led."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_process(p.gate, p.run())) for p in self.processes]
            try:
                await self._do_harm()
            finally:
                self._calm_down()
            waited = await self._wait_for_leader()
            await self._assert_it_stays()
            for task in tasks:
                task.cancel()
        return waited

    async def _do_harm(self) -> None:
        end = asyncio.get_running_loop().time() + FAULTS_LAST
        while asyncio.get_running_loop().time() < end:
            self._harm(self.random.choice(self.processes))
            await asyncio.sleep(self.random.expovariate(1 / 4))

    def _harm(self, process: Process) -> None:
        match self.random.randrange(6):
            case 0:
                process.gate.freeze()
            case 1:
                process.wall.offset = self.random.uniform(-1e6, 1e6)
            case 2:
                process.connection.weather = Weather(latency=self.random.uniform(0.1, 6))
            case 3:
                process.connection.weather = Weather(
                    latency=self.random.uniform(0.01, 1),
                    refused=self.random.random(),
                    lost=self.random.random(),
                )
            case _:
                process.gate.thaw()
                process.connection.weather = CALM

    def _calm_down(self) -> None:
        self.is_calm = True
        for process in self.processes:
            process.gate.thaw()
            process.connection.weather = CALM

    async def _wait_for_leader(self) -> float:
        waited = 0.0
        while not any(process.is_open() for process in self.processes):
            await asyncio.sleep(0.5)
            waited += 0.5
            assert waited <= LEADS_WITHIN
        return waited

    async def _assert_it_stays(self) -> None:
        await asyncio.sleep(20)  # those who were frozen learn only now what they have lost
        losses = self.losses
        await asyncio.sleep(60)
        assert sum(process.is_open() for process in self.processes) == 1
        assert self.losses == losses


def simulate(seed: int) -> World:
    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.get_loop().set_task_factory(task_factory)
            return runner.run(_simulate(seed))
    finally:
        logging.disable(logging.NOTSET)


async def _simulate(seed: int) -> World:
    world = World(seed)
    await world.run()
    return world


@pytest.mark.parametrize("seed", range(24))
def test_no_two_candidates_lead_at_once_and_one_does_when_faults_end(seed: int) -> None:
    world = simulate(seed)

    assert world.writes > 60


def test_the_simulation_does_harm() -> None:
    worlds = [simulate(seed) for seed in range(1000, 1003)]

    assert all(world.losses for world in worlds)
    transitions = [world.server.spec["leaseTransitions"] for world in worlds]
    assert all(isinstance(count, int) and count >= 3 for count in transitions)
