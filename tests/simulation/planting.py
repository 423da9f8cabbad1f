"""How a defect is planted: names of the product are replaced for as long as a test runs."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pileus_lab.simulation.hosts.product import replaced

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
    """The seed that found it when that was last measured. It is tried first."""

    def seeds(self) -> list[int]:
        """Returns the seeds of which one must find it, the one that probably does first."""
        within = range(self.first, self.first + self.within)
        return sorted(within, key=lambda seed: seed != self.at)


def planted(defect: Defect) -> AbstractContextManager[None]:
    return replaced(defect.plant())
