"""Which fault strikes a call, if any; and which have struck, for the summary."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from pileus_lab.simulation.chance import stream
from pileus_lab.simulation.kinds import FaultKind, Place
from pileus_lab.simulation.schedule import Item, Spell


@dataclass(frozen=True, slots=True)
class Strike:
    kind: FaultKind
    seconds: float


class Weather:
    """The spells of a schedule. Each draws from its own stream of chance."""

    def __init__(self, seed: int, items: Sequence[Item], now: Callable[[], float]) -> None:
        self._now = now
        spells = [one for one in items if isinstance(one, Spell)]
        self._spells: dict[Place, list[tuple[Spell, Random]]] = {
            place: [
                (one, stream(seed, "spell", one.number))
                for one in spells
                if one.kind.place is place
            ]
            for place in Place
        }
        self.struck: Counter[tuple[FaultKind, str]] = Counter()
        """How often each fault struck whom."""

    def strike(
        self, place: Place, who: str, *, may: Callable[[FaultKind], bool] = lambda _: True
    ) -> Strike | None:
        """What befalls a call that `who` makes now; only what `may` befall it."""
        now = self._now()
        for spell, chance in self._spells[place]:
            if not (spell.at <= now < spell.until) or not may(spell.kind):
                continue
            if chance.random() < spell.rate:
                self.struck[spell.kind, who] += 1
                return Strike(spell.kind, spell.seconds)
        return None
