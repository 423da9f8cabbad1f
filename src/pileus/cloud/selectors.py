"""Node selectors in annotations, as with `kubectl get nodes -l`: `pool=web,zone!=b,gpu,!spot`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache

from pileus.cloud.model import NodeRef
from pileus.dataclass import dataclass

KEY = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
REQUIREMENT = re.compile(
    rf"(?P<not>!)?(?P<key>{KEY})((?P<op>==|=|!=)(?P<value>{VALUE}))?", re.ASCII
)
MOST = 100
"""Requirements of a selector."""
KEPT = 64
"""Selections that are remembered: Services with one selector share one set of members."""


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    value: str | None = None
    """None: any."""
    is_negative: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        has = self.key in labels if self.value is None else labels.get(self.key) == self.value
        return has is not self.is_negative


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements hold; a selector without any selects every node."""

    requirements: tuple[Requirement, ...] = ()
    is_given: bool = field(default=False, repr=False)
    """Whether it was written: then it replaces a default of the provider, even if it is empty."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(each.holds(labels) for each in self.requirements)


EVERY_NODE = Selector()


@lru_cache(maxsize=KEPT)
def parse_selector(text: str) -> Selector:
    """Raises ValueError whose text completes: `x must be …`."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > MOST:
        raise ValueError(f"a node selector with at most {MOST} requirements")
    return Selector(tuple(map(_requirement, parts)), is_given=True)


def _requirement(part: str) -> Requirement:
    found = REQUIREMENT.fullmatch(part)
    if found is None or (found["not"] and found["op"]):
        raise ValueError("a node selector such as pool=web,zone!=b,!spot")
    is_negative = bool(found["not"]) or found["op"] == "!="
    return Requirement(found["key"], found["value"], is_negative)


def combined(selectors: Iterable[object]) -> Selector:
    """Returns the selector of nodes that all of them select."""
    every = [each for each in selectors if isinstance(each, Selector)]
    requirements = tuple(one for each in every for one in each.requirements)
    return Selector(requirements, is_given=any(each.is_given for each in every))


@lru_cache(maxsize=KEPT)
def select(members: frozenset[NodeRef], selector: Selector) -> frozenset[NodeRef]:
    """Returns the members that the selector matches; the same object if it selects every node."""
    if not selector.requirements:
        return members
    return frozenset(node for node in members if selector.matches(node.labels))
