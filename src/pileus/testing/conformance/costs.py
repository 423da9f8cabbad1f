"""The law that no Service keeps the event loop busy, however large its author makes it.

One thread of one process serves all Services, renews the lease and answers the probes.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, TypeAlias

from pileus.cloud.balancer import (
    MOST_LISTENERS,
    MOST_PAIRS,
    MOST_RANGES,
    Balancers,
    BalancerSpec,
    Listener,
    Owner,
    Seen,
)
from pileus.cloud.errors import CloudError
from pileus.cloud.model import NodeName, NodeRef
from pileus.testing.conformance.convergence import SMALL, US, look, settle, wish_for
from pileus.testing.conformance.harness import BalancersHarness
from pileus.testing.cpu_time import cpu_time, scaled_cpu_time

SpecOf: TypeAlias = Callable[[int], BalancerSpec]
"""Returns another spec of the same size for each number: nothing is remembered of it."""
OWNER = Owner(US, "u1")
LIMIT = 0.05
"""Seconds of CPU time that `changes` may take for one load balancer."""
ROOM = 1.5
"""How much longer a measurement may be than the code takes, beside other processes."""
NODES = 20
"""Most clouds have to start a machine for each."""
LARGEST = {
    "many listeners": (MOST_LISTENERS, 0, 1),
    "many source ranges": (1, MOST_RANGES, 1),
    "many listeners with few source ranges": (MOST_LISTENERS, MOST_PAIRS // MOST_LISTENERS, 1),
    "few listeners with many source ranges": (MOST_PAIRS // MOST_RANGES, MOST_RANGES, 1),
    "listeners, source ranges and members": (MOST_PAIRS // NODES, NODES, NODES),
}
"""Numbers of listeners, source ranges and members of the largest specs that the core passes on."""
STANDING = (MOST_PAIRS // NODES, NODES, NODES)
"""A load balancer that clouds of tests build in little time, and that is not small."""


def large_spec(listeners: int, ranges: int, members: int, salt: int = 0) -> BalancerSpec:
    """Returns a spec; with another salt, all its source ranges are others."""
    return BalancerSpec(
        listeners=frozenset(
            Listener(port=n, node_port=30_000 + n, position=n - 1) for n in range(1, listeners + 1)
        ),
        members=frozenset(NodeRef(name=NodeName(f"n{n}")) for n in range(members)),
        source_ranges=frozenset(f"{10 + salt}.{n >> 8}.{n & 255}.0/24" for n in range(ranges)),
    )


OTHER = frozenset({Listener(port=5000, node_port=35_000)})


async def the_largest_service_is_cheap(harness: BalancersHarness) -> None:
    """A new load balancer, and a small one that is to become large."""
    async with harness.connect() as balancers:
        wish = wish_for(harness, OWNER, SMALL)
        nothing = await look(balancers, wish, deep=True)
        small = await settle(harness, balancers, wish)
        for what, size in LARGEST.items():
            for seen in (nothing, small):
                _check_cost(harness, balancers, seen, what, lambda n, of=size: large_spec(*of, n))


async def a_large_load_balancer_is_cheap(harness: BalancersHarness) -> None:
    """A load balancer that is large: nothing is left to change, or every part of it."""
    listeners, ranges, members = STANDING
    spec = large_spec(listeners, ranges, members)
    async with harness.connect() as balancers:
        seen = await settle(harness, balancers, wish_for(harness, OWNER, spec))
        cases: dict[str, SpecOf] = {
            "no change": lambda _: spec,
            "other source ranges": lambda n: large_spec(listeners, ranges, members, n),
            "members that leave": lambda n: replace(spec, members=frozenset([*spec.members][n:])),
            "no listener that stays": lambda _: replace(SMALL, listeners=OTHER),
        }
        for what, spec_of in cases.items():
            _check_cost(harness, balancers, seen, what, spec_of)


def _check_cost(
    harness: BalancersHarness,
    balancers: Balancers[Any, Any],
    seen: Seen,
    what: str,
    spec_of: SpecOf,
) -> None:
    numbers = count(1)

    def measure() -> float:
        wish = wish_for(harness, OWNER, spec_of(next(numbers)))

        def decide() -> None:
            with suppress(CloudError):
                balancers.changes(wish, seen)

        return cpu_time(decide)

    taken = scaled_cpu_time(measure, LIMIT * ROOM)
    assert taken < LIMIT * ROOM, (
        f"changes() takes {taken * 1000:.0f} ms of CPU time for {what}, and {LIMIT * 1000:.0f} ms "
        "are allowed: meanwhile the process does nothing else, for any Service. Compute what all "
        "listeners have in common once, not for each of them"
    )
