"""Chance in streams: each part of a simulation draws from its own and disturbs no other."""

from random import Random


def stream(seed: int, *names: object) -> Random:
    """The same seed and names give the same numbers, on any machine."""
    return Random("/".join(map(str, (seed, *names))))  # noqa: S311 -- a simulation, no secret
