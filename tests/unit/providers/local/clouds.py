"""Local clouds for tests: time and chance under control, no sockets."""

from datetime import UTC, datetime, timedelta
from random import Random

from pileus.clock import Clock
from pileus_lab.local.cloud import Behaviour, CloudContext, LocalCloud
from pileus_lab.local.disks import Disks
from pileus_lab.local.journal import Journal
from pileus_lab.local.model.state import Moment, Settings

START = datetime(2030, 1, 1, tzinfo=UTC)


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> datetime:
        return self.time

    def forward(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def local_cloud(
    clock: Clock | None = None,
    *,
    settings: Settings | None = None,
    behaviour: Behaviour | None = None,
    journal: Journal | None = None,
    disks: Disks | None = None,
    seed: int = 1,
) -> LocalCloud:
    return LocalCloud(
        CloudContext(
            clock=clock or Hands(),
            chance=Random(seed),
            journal=journal,
            settings=settings or Settings(),
            behaviour=behaviour or Behaviour(),
            disks=disks,
        )
    )


def moment(now: float = 0.0, *, settings: Settings | None = None, seed: int = 1) -> Moment:
    return Moment(now, Random(seed), settings or Settings())
