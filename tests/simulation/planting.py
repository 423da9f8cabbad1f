"""How a defect is planted: names of the product are replaced for as long as a test runs."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

Patch = tuple[object, str, object]
"""Where, which name, and what stands there instead."""


@dataclass(frozen=True)
class Defect:
    name: str
    plant: Callable[[], Iterable[Patch]]
    caught_by: tuple[str, ...]
    """The invariants of which one must not hold."""
    within: int = 10
    """Seeds, from the first on, of which one must find it."""
    scenario: str = "mixed"
    first: int = 1
    """The first of them; of what only a rare course of events shows, one that shows it."""
    at: int = 1
    """The seed that found it when that was last measured."""


@contextmanager
def planted(defect: Defect) -> Generator[None]:
    patches = list(defect.plant())
    sound = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, instead in patches:
        setattr(owner, name, instead)
    try:
        yield
    finally:
        for owner, name, before in sound:
            setattr(owner, name, before)
