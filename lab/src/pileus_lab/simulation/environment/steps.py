"""The single steps of a simulated world, which invariants check, and the trace of them."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from pileus_lab.apiserver.tree import Obj
from pileus_lab.simulation.clouds.truth import Truth


@dataclass(frozen=True, slots=True)
class ObjectStep:
    """An object of the cluster was created, changed or deleted."""

    who: str
    resource: str
    before: Obj | None
    after: Obj | None
    had_heard_of: Callable[[str], bool] = field(default=lambda _: True, repr=False)
    """Whether the author had received an object of that UID when sending the request."""


@dataclass(frozen=True, slots=True)
class CloudStep:
    """The cloud changed."""

    who: str
    operation: object
    before: Truth
    after: Truth


class HostEvent(StrEnum):
    """What happens to a volume on a machine."""

    FORMAT = "is formatted"
    GROW = "has its filesystem grown"
    MOUNT = "is mounted"
    READ = "is read by a pod"
    USE = "is used by a pod"


@dataclass(frozen=True, slots=True)
class HostStep:
    """Something happens to a volume on a machine."""

    machine: str
    """ID of the machine."""
    event: HostEvent
    volume: str
    """ID of the volume; empty: a disk of the machine that is no volume."""
    what: str = ""
    wrong: str = ""
    """What a pod found instead of its data; empty: nothing is wrong."""
    for_readers: bool = False
    """Whether a request asks for it that lets nothing write to the filesystem."""


class Channel(StrEnum):
    """The kind of a request."""

    READ = "reads"
    WRITE = "writes"
    WATCH = "watches"
    EVENT = "events"
    LEASE = "requests for the lease"
    CLOUD_READ = "reads of the cloud"
    CLOUD_WRITE = "writes to the cloud"


@dataclass(frozen=True, slots=True)
class Call:
    """A manager sends a request, to the API server or to the cloud."""

    who: str
    identity: str
    """Identity of the process: a restarted manager has another."""
    at: float
    channel: Channel
    agent: str
    """Which part of the manager sends it."""
    what: str
    """Method and path; or the operation and its subject."""
    content: bytes = field(default=b"", repr=False)
    shared: str = ""
    """The object of a write to the cloud, if several Services or routes change it."""
    continues: bool = False
    """Whether it is for a further page of a list with pages that are shorter than declared."""

    @property
    def is_work(self) -> bool:
        """Whether only a leader may send it."""
        return self.channel is Channel.WRITE or self.channel is Channel.CLOUD_WRITE

    @property
    def is_renewal(self) -> bool:
        """Whether it acquires or renews the lease."""
        return self.channel is Channel.LEASE and not self.what.startswith("GET")

    @property
    def is_to_cloud(self) -> bool:
        return self.channel is Channel.CLOUD_READ or self.channel is Channel.CLOUD_WRITE


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request, as its sender gets it, or would get it."""

    call: Call
    trouble: str = ""
    """The error; empty if none."""
    patience: float | None = None
    """Seconds of Retry-After."""
    is_untrue: bool = False
    """Whether it shows a false state as true."""
    is_injected: bool = False
    """Whether the error is a fault of the schedule, and not the cloud's own."""


Step = ObjectStep | CloudStep | HostStep | Call | Answer


FORMAT = "pileus simulation trace, version 1"


class Trace:
    """Lines with time and actor. Closed at the first violation."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._open = True
        self.lines: list[str] = []

    def note(self, who: str, what: str) -> None:
        if self._open:
            self.lines.append(f"{self.now():10.3f} {who:<10} {what}")

    def close(self) -> None:
        self._open = False

    def digest(self) -> str:
        """A hash of the whole trace: equal traces, equal hashes."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]
