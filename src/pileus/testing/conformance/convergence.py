"""What the laws for `Balancers` share: specs to ask for, and passes until they are reached."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pileus.cloud.balancer import (
    Balancers,
    BalancerSpec,
    BalancerState,
    Change,
    Listener,
    Owner,
    Seen,
    Wish,
)
from pileus.cloud.errors import Conflict, Unsupported
from pileus.cloud.model import Failure, NodeName, NodeRef
from pileus.testing.conformance.harness import BalancersHarness, Built

US, THEM = "our-cluster", "their-cluster"
ROUNDS = 30
UNREADY = frozenset({BalancerState.PENDING, BalancerState.PROVISIONING})
Make = Callable[[], BalancersHarness]
"""Makes a new, empty cloud."""


def spec_of(
    ports: frozenset[int],
    members: frozenset[str],
    sticky: int | None = None,
    sources: frozenset[str] = frozenset(),
) -> BalancerSpec:
    """Returns a spec as a Service has it, whatever the cloud can do: see `adapted`."""
    return BalancerSpec(
        listeners=frozenset(Listener(port=port, node_port=30000 + port) for port in ports),
        members=frozenset(NodeRef(name=NodeName(name)) for name in members),
        sticky_seconds=sticky,
        source_ranges=sources,
    )


SMALL = spec_of(frozenset({1, 2}), frozenset("ab"))
LARGE = spec_of(frozenset({2, 3, 4}), frozenset("bcd"), 60, frozenset({"10.0.0.0/8"}))


def adapted(harness: BalancersHarness, spec: BalancerSpec) -> BalancerSpec:
    """Returns the spec as the core gives it to a provider with the declared abilities."""
    able = harness.abilities
    return replace(
        spec,
        members=frozenset(harness.member(node.name) for node in spec.members),
        sticky_seconds=able.stickiness(spec.sticky_seconds),
        source_ranges=spec.source_ranges if able.source_ranges else frozenset(),
    )


def wish_for(harness: BalancersHarness, owner: Owner, spec: BalancerSpec | None) -> Wish:
    return harness.wish(owner, None if spec is None else adapted(harness, spec))


def built_of(harness: BalancersHarness, spec: BalancerSpec) -> Built:
    """Returns what exists when the spec is reached."""
    able = adapted(harness, spec)
    return Built(
        frozenset(listener.port for listener in able.listeners),
        frozenset(node.name for node in able.members),
        able.sticky_seconds,
        able.source_ranges,
    )


async def settle(
    harness: BalancersHarness,
    balancers: Balancers[Any, Any],
    wish: Wish,
    *,
    deep: bool = True,
    waits: bool = True,
) -> Seen:
    """Run passes as the service controller does, until nothing is left to change or wait for.

    With `waits=False`, a load balancer that is as close as possible for now is enough
    (`Balancer.check_again_in`).

    Fails if that takes too many passes, or if the provider refuses what it declared. Raises
    `Unsupported` if the provider cannot adopt the load balancer that the wish names.
    """
    try:
        return await _settle(harness, balancers, wish, deep=deep, waits=waits)
    except Unsupported as error:
        if wish.adopts:
            raise
        raise AssertionError(_refused(harness, wish, error)) from error


async def _settle(
    harness: BalancersHarness,
    balancers: Balancers[Any, Any],
    wish: Wish,
    *,
    deep: bool,
    waits: bool,
) -> Seen:
    for _ in range(ROUNDS):
        seen = (await balancers.observe([wish], deep=deep)).get(wish.owner)
        if seen is None or isinstance(seen, Failure):
            continue
        check_state(harness, seen)
        changes = balancers.changes(wish, seen)
        if not changes and not (is_unsettled(seen) if waits else is_in(seen, *UNREADY)):
            return seen
        await _apply(harness, balancers, changes, seen)
    raise AssertionError(f"{wish} is not reached after {ROUNDS} passes")


async def _apply(
    harness: BalancersHarness,
    balancers: Balancers[Any, Any],
    changes: tuple[Change, ...],
    seen: Seen,
) -> None:
    """Apply the changes in order, until the cloud refuses further ones for now."""
    try:
        for change in changes:
            seen = await balancers.apply(change, seen)
            check_state(harness, seen)
            if is_in(seen, BalancerState.PENDING):
                return
    except Conflict as error:
        if is_in(seen, BalancerState.PROVISIONING):
            raise AssertionError(
                "abilities.changes_while_provisioning is declared, but a load balancer that is "
                f"PROVISIONING refused a change: {error}"
            ) from error


def is_in(seen: Seen, *states: BalancerState) -> bool:
    return seen.balancer is not None and seen.balancer.state in states


def is_unsettled(seen: Seen) -> bool:
    """Whether it is to be checked again: not ready, or only as close as possible for now."""
    if seen.balancer is None:
        return False
    return seen.balancer.state in UNREADY or seen.balancer.check_again_in is not None


def check_state(harness: BalancersHarness, seen: Seen) -> None:
    is_allowed = harness.abilities.changes_while_provisioning
    assert is_allowed or not is_in(seen, BalancerState.PROVISIONING), (
        "the provider reports BalancerState.PROVISIONING without declaring "
        "abilities.changes_while_provisioning. Declare it, or report PENDING"
    )


def _refused(harness: BalancersHarness, wish: Wish, error: Unsupported) -> str:
    able = harness.abilities
    spec = wish.spec
    asked = spec and (spec.sticky_seconds, sorted(spec.source_ranges), spec.families)
    return (
        f"the provider raised Unsupported ({error}) for a spec within its declared abilities "
        f"(affinity={able.affinity.value}, source_ranges={able.source_ranges}, "
        f"families={sorted(able.families)}, dual_stack={able.dual_stack}; asked for "
        f"sticky_seconds, source_ranges and families {asked}). Declare what the cloud cannot do"
    )


async def look(balancers: Balancers[Any, Any], wish: Wish, *, deep: bool) -> Seen:
    """Returns one observation, after everything that the cloud was at work on."""
    for _ in range(ROUNDS):
        seen = (await balancers.observe([wish], deep=deep)).get(wish.owner)
        if seen is None or isinstance(seen, Failure):
            continue
        if not is_in(seen, *UNREADY):
            return seen
    raise AssertionError(f"{wish} is unknown or not ready after {ROUNDS} observations")


def standing(harness: BalancersHarness, cluster: str) -> dict[str, Built]:
    """Returns what exists for one cluster, by the UID of the owner."""
    return {o.uid: built for o, built in harness.built().items() if o.cluster == cluster}
