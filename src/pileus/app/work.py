"""What a controller is given when this process leads, and what it gives back."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from pileus.app.clients import Clients
from pileus.app.config import Config
from pileus.app.informers import SharedInformers
from pileus.clock import Clock
from pileus.cloud.interface import Cloud
from pileus.fence import Fence
from pileus.objects.preview import Preview
from pileus.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """All that a controller may use. Its writes, to cluster and cloud, stop with the fence."""

    config: Config
    cloud: Cloud
    clients: Clients
    informers: SharedInformers
    fence: Fence
    metrics: Metrics
    clock: Clock
    random: Random


@dataclass(frozen=True, slots=True)
class Duty:
    """A controller that is ready to run: until cancelled, and then it has ended."""

    run: Callable[[], Awaitable[None]]
    health: Callable[[], str | None]
    preview: Preview
    """Its plan; needs the informers to run, but not the controller itself."""
    failing: Callable[[], str | None] = lambda: None
    """Reports periodic work that keeps failing. Not for liveness: a restart would not fix it."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A controller that does not run here, and why."""

    why: str
    is_news: bool = True
    """False: nobody asked for it, so nobody needs to be warned."""


MakeDuty = Callable[[Post], Duty | Skipped]
