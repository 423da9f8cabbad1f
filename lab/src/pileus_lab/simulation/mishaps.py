"""What befalls managers and API servers: they crash, freeze, sleep, restart, and lose their way."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.loop import SimulationLoop
from pileus_lab.simulation.replica import Replica
from pileus_lab.simulation.schedule import CHOICES, Deed
from pileus_lab.simulation.stage.cluster import Cluster
from pileus_lab.simulation.trace import Trace
from pileus_lab.simulation.wires.life import Life

LONGEST_OUTAGE = 30.0
"""Seconds for which the API server is away, or behind, at most."""
MOST_STEPS = 3000
"""Of a manager's tasks, after which something strikes it; about as many as its start takes."""


class Mishaps:
    def __init__(
        self,
        managers: Sequence[Replica],
        cluster: Cluster,
        loop: SimulationLoop,
        trace: Trace,
        lease_seconds: float,
    ) -> None:
        self._managers = managers
        self._cluster = cluster
        self._loop = loop
        self._trace = trace
        self._lease_seconds = lease_seconds
        self.deeds: Mapping[DeedKind, Callable[[Deed], None]] = {
            DeedKind.REPLICA_CLOCK: self._wind,
            DeedKind.REPLICA_CRASH: self._to_who_lives(lambda _, life: life.crash()),
            DeedKind.REPLICA_CRASH_AT_WRITE: self._to_who_lives(self._crash_at_write),
            DeedKind.REPLICA_CRASH_AT_STEP: self._crash_at_step,
            DeedKind.REPLICA_STOP: lambda deed: self._chosen(deed).stop(),
            DeedKind.REPLICA_PAUSE: self._to_who_lives(
                lambda deed, life: self._pause(life, deed.seconds)
            ),
            DeedKind.REPLICA_PAUSE_AT_WRITE: self._to_who_lives(self._pause_at_write),
            DeedKind.REPLICA_PAUSE_AT_STEP: self._to_who_lives(self._pause_at_step),
            DeedKind.REPLICA_SLEEP: self._to_who_lives(self._sleep),
            DeedKind.SERVER_RESTART: self._restart,
            DeedKind.SERVER_SWITCH: self._switch,
            DeedKind.SERVER_COMPACT: lambda _: self._cluster.forget(),
        }

    def end(self) -> None:
        """From now on nothing more befalls them, and what did is over; who sleeps sleeps on."""
        self._cluster.come_back()
        for manager in self._managers:
            manager.crash_when_started(0)
            if manager.life is not None:
                manager.life.disarm()
                if not manager.life.process.asleep:
                    self._loop.resume(manager.life.process)

    def _chosen(self, deed: Deed) -> Replica:
        """Mostly the one that leads: the others have little to lose."""
        leader = self._cluster.leader()
        leading = [one for one in self._managers if one.life and one.life.identity == leader]
        among = leading if leading and deed.choice % 4 else self._managers
        return among[deed.choice % len(among)]

    def _to_who_lives(self, strike: Callable[[Deed, Life], None]) -> Callable[[Deed], None]:
        """Who has crashed and not come again is spared."""

        def strike_chosen(deed: Deed) -> None:
            life = self._chosen(deed).life
            if life is not None:
                strike(deed, life)

        return strike_chosen

    def _wind(self, deed: Deed) -> None:
        seconds = deed.seconds * (60 if deed.choice % 2 else -60)
        self._chosen(deed).wind(seconds, deed.choice / CHOICES)

    def _crash_at_write(self, deed: Deed, life: Life) -> None:
        life.ambush(1 + deed.choice % 7, life.crash, after=deed.choice % 2 > 0)

    def _crash_at_step(self, deed: Deed) -> None:
        """At work; or while it ends in good order; or soon after it came again."""
        manager = self._chosen(deed)
        life = manager.life
        if life is None:
            return
        if deed.choice // 256 % 4 == 0:
            manager.crash_when_started(_step(deed))
            life.crash()
            return
        if deed.choice // 256 % 4 == 1:
            manager.stop()
        life.process.strike_at_step(_step(deed), life.crash)

    def _pause_at_write(self, deed: Deed, life: Life) -> None:
        pause = partial(self._pause, life, self._lease_seconds + deed.seconds)
        life.ambush(1 + deed.choice % 5, pause, after=deed.choice % 2 > 0)

    def _pause_at_step(self, deed: Deed, life: Life) -> None:
        pause = partial(self._pause, life, self._lease_seconds + deed.seconds)
        life.process.strike_at_step(_step(deed), pause)

    def _pause(self, life: Life, seconds: float) -> None:
        self._trace.note(life.name, f"paused for {seconds:.1f} s")
        self._loop.pause(life.process)
        self._loop.call_later(seconds, self._loop.resume, life.process)

    def _sleep(self, deed: Deed, life: Life) -> None:
        self._trace.note(life.name, f"sleeps for {deed.seconds:.1f} s")
        self._loop.suspend(life.process, deed.seconds)

    def _restart(self, deed: Deed) -> None:
        self._cluster.go_down()
        self._loop.call_later(min(deed.seconds, LONGEST_OUTAGE), self._cluster.come_back)

    def _switch(self, deed: Deed) -> None:
        self._cluster.behind_until = self._loop.now() + min(deed.seconds, LONGEST_OUTAGE)
        self._cluster.cut_watches()


def _step(deed: Deed) -> int:
    """The first steps are as likely as the many later ones."""
    return int(MOST_STEPS ** (deed.choice % 256 / 256))
