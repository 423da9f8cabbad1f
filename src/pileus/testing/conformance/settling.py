"""What the laws for `Balancers` share: specs to wish for, and the way to a wish that is met."""

from collections.abc import Callable
from typing import Any

from pileus.cloud.balancer import Balancers, BalancerSpec, BalancerState, Listener, Seen, Wish
from pileus.cloud.errors import Conflict
from pileus.cloud.model import Failure, NodeName, NodeRef
from pileus.testing.conformance.harness import BalancersHarness, Built

US, THEM = "our-cluster", "their-cluster"
ROUNDS = 30
Make = Callable[[], BalancersHarness]
"""Makes a new, empty cloud."""


def spec_of(
    ports: frozenset[int],
    members: frozenset[str],
    sticky: int | None = None,
    sources: frozenset[str] = frozenset(),
) -> BalancerSpec:
    return BalancerSpec(
        listeners=frozenset(Listener(port=port, node_port=30000 + port) for port in ports),
        members=frozenset(NodeRef(name=NodeName(name)) for name in members),
        sticky_seconds=sticky,
        source_ranges=sources,
    )


SMALL = spec_of(frozenset({1, 2}), frozenset("ab"))
LARGE = spec_of(frozenset({2, 3, 4}), frozenset("bcd"), 60, frozenset({"10.0.0.0/8"}))


def built_of(spec: BalancerSpec) -> Built:
    """What should stand when the wish is met."""
    return Built(
        frozenset(listener.port for listener in spec.listeners),
        frozenset(node.name for node in spec.members),
        spec.sticky_seconds,
        spec.source_ranges,
    )


async def settle(balancers: Balancers[Any, Any], wish: Wish, *, deep: bool = True) -> Seen:
    """The service reconciler in a nutshell; fails if the wish is not met in a few rounds."""
    for _ in range(ROUNDS):
        seen = (await balancers.observe([wish], deep=deep)).get(wish.owner)
        if seen is None or isinstance(seen, Failure):
            continue
        is_busy = seen.balancer is not None and seen.balancer.state is BalancerState.PENDING
        changes = balancers.changes(wish, seen)
        if not changes and not is_busy:
            return seen
        try:
            for change in changes:
                seen = await balancers.apply(change, seen)
        except Conflict:
            continue
    raise AssertionError(f"{wish} is not settled after {ROUNDS} rounds")


async def look(balancers: Balancers[Any, Any], wish: Wish, *, deep: bool) -> Seen:
    """One observation, after whatever the cloud was busy with."""
    for _ in range(ROUNDS):
        seen = (await balancers.observe([wish], deep=deep)).get(wish.owner)
        if seen is None or isinstance(seen, Failure):
            continue
        if seen.balancer is None or seen.balancer.state is not BalancerState.PENDING:
            return seen
    raise AssertionError(f"{wish} is unknown or busy after {ROUNDS} looks")


def standing(harness: BalancersHarness, cluster: str) -> dict[str, Built]:
    """What stands of one cluster, by the owner's uid."""
    return {o.uid: built for o, built in harness.built().items() if o.cluster == cluster}
