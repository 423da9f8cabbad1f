"""A cache for functions of values that never change and cannot be hashed."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")
MOST = 4096
"""Values whose results are kept."""


def by_identity(function: Callable[[A], R]) -> Callable[[A], R]:
    """Keeps the results of a pure function, by the identity of its argument.

    Arguments are kept as well, so that no other value gets the identity of one of them.
    """
    known: dict[int, tuple[A, R]] = {}

    @wraps(function)
    def cached(one: A) -> R:
        found = known.get(id(one))
        if found is None:
            if len(known) >= MOST:
                known.clear()
            found = known[id(one)] = one, function(one)
        return found[1]

    return cached
