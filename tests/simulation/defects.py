"""Defects that are planted into the manager on purpose, to see that the simulation finds them.

They exist only here: each replaces a name of the product for as long as a test runs.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from pileus.runtime.leadership import LeaseFence
from pileus.runtime.lease import Observed
from pileus.runtime.queue import WorkQueue

Plant = Callable[[], tuple[object, str, object]]
"""Where, which name, and what stands there instead."""


@dataclass(frozen=True)
class Defect:
    name: str
    plant: Plant
    caught_by: tuple[str, ...]
    """The invariants of which one must not hold."""
    within: int
    """Seeds, from the first on, of which one must find it."""
    scenario: str = "mixed"


@contextmanager
def planted(defect: Defect) -> Generator[None]:
    owner, name, instead = defect.plant()
    sound = getattr(owner, name)
    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, sound)


def _no_fence() -> tuple[object, str, object]:
    return LeaseFence, "check", lambda self: None


def _impatient() -> tuple[object, str, object]:
    return Observed, "is_free", lambda self, identity, now: True


def _deaf_queue() -> tuple[object, str, object]:
    sound, calls = WorkQueue.add, [0]

    def add(self: object, *args: object) -> None:
        calls[0] += 1
        if calls[0] % 4:
            sound(self, *args)  # type: ignore[arg-type]

    return WorkQueue, "add", add


DEFECTS = (
    Defect(
        "the lease is not looked at before a write",
        _no_fence,
        ("only_the_leader_writes",),
        10,
        "leaders",
    ),
    Defect(
        "a lease is taken though its holder lives",
        _impatient,
        ("only_the_leader_writes",),
        10,
        "leaders",
    ),
    Defect(
        "every fourth wake-up is lost",
        _deaf_queue,
        ("nodes_are_as_their_machines", "services_have_what_they_want"),
        10,
    ),
)
