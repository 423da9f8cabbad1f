"""The laws for `Balancers`, under crashes, lost answers and hands from outside."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from pileus.cloud.balancer import (
    Balancers,
    BalancerSpec,
    BalancerState,
    Effect,
    Listener,
    Owner,
    Part,
    Wish,
)
from pileus.cloud.errors import Conflict
from pileus.cloud.model import Failure, NodeName, NodeRef
from pileus.testing.conformance.harness import (
    BalancersHarness,
    Built,
    Crash,
    LoopFactory,
    run,
)

US, THEM = "our-cluster", "their-cluster"
ROUNDS = 30
Make = Callable[[], BalancersHarness]


def spec_of(ports: frozenset[int], members: frozenset[str]) -> BalancerSpec:
    return BalancerSpec(
        listeners=frozenset(Listener(port=port, node_port=30000 + port) for port in ports),
        members=frozenset(NodeRef(name=NodeName(name)) for name in members),
    )


@dataclass(frozen=True, slots=True)
class Vandal:
    """Someone deletes our balancer by hand."""


@dataclass(frozen=True, slots=True)
class Vanish:
    """The Service is deleted by force: nobody tells us."""


SPECS = st.builds(
    spec_of,
    st.frozensets(st.integers(1, 4), min_size=1),
    st.frozensets(st.sampled_from("abcd")),
)
EVENTS = SPECS | st.none() | st.builds(Vandal) | st.builds(Vanish)
HISTORIES = st.lists(st.tuples(st.sampled_from(["u1", "u2", "u3"]), EVENTS), max_size=6)
FOREIGN = spec_of(frozenset({1, 2}), frozenset("ab"))


class BalancersLaws:
    examples: ClassVar[int] = 100
    """How many histories are tried."""

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def make(self) -> BalancersHarness:
        """A new, empty cloud."""
        raise NotImplementedError

    def test_after_any_history_all_is_as_wished_and_nothing_foreign_was_touched(self) -> None:
        hold_history(self.make, self.new_loop, self.examples)

    def test_changes_are_pure_end_and_may_be_applied_twice(self) -> None:
        hold_changes(self.make, self.new_loop, self.examples)

    def test_deleting_what_is_gone_succeeds(self) -> None:
        run(gone_is_deleted(self.make()), self.new_loop)


async def settle(balancers: Balancers[Any, Any], wish: Wish) -> object:
    """The service reconciler in a nutshell; fails if the wish is not met in a few rounds."""
    for _ in range(ROUNDS):
        seen = (await balancers.observe([wish], deep=True)).get(wish.owner)
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


def hold_history(
    make: Make, loop_factory: LoopFactory, examples: int, *, shrink: bool = True
) -> None:
    @_settings(examples, shrink=shrink)
    @given(HISTORIES, st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.4]))
    @example([("u1", FOREIGN), ("u1", Vandal()), ("u1", Vanish())], 0, 0.0)
    @example([("u1", FOREIGN), ("u1", Vandal()), ("u1", None)], 0, 0.0)
    def law(history: list[tuple[str, object]], seed: int, rate: float) -> None:
        run(_history(make(), history, Random(seed), rate), loop_factory)  # noqa: S311 -- of faults

    law()


async def _history(
    harness: BalancersHarness, history: list[tuple[str, object]], chance: Random, rate: float
) -> None:
    async with harness.connect() as theirs:
        await settle(theirs, harness.wish(Owner(THEM, "u1"), FOREIGN))
    before = _of(harness, THEM)
    wanted: dict[Owner, BalancerSpec | None] = {}
    for uid, event in history:
        owner = Owner(US, uid)
        await _happen(harness, owner, event, wanted, lambda: chance.random() < rate)
    await _restart(harness, wanted)

    expected = {
        owner: Built(
            frozenset(listener.port for listener in spec.listeners),
            frozenset(node.name for node in spec.members),
        )
        for owner, spec in wanted.items()
        if spec is not None
    }
    assert _of(harness, US) == expected
    assert _of(harness, THEM) == before, "something foreign was touched"
    assert harness.strays() == 0, "parts were left behind"


async def _happen(
    harness: BalancersHarness,
    owner: Owner,
    event: object,
    wanted: dict[Owner, BalancerSpec | None],
    chance: Callable[[], bool],
) -> None:
    match event:
        case Vandal():
            harness.vandalise(owner)
        case Vanish():
            if harness.finds_leftovers:
                wanted.pop(owner, None)
        case BalancerSpec() | None:
            wanted[owner] = event
            wish = harness.wish(owner, event)
            harness.crash_when(chance)
            try:
                async with harness.connect() as balancers:
                    await settle(balancers, wish)
            except Crash:
                pass
            harness.crash_when(lambda: False)
        case _:
            raise AssertionError(event)


async def _restart(harness: BalancersHarness, wanted: dict[Owner, BalancerSpec | None]) -> None:
    """A new process: what is wished is met, and leftovers are found by their marks alone."""
    async with harness.connect() as balancers:
        leftovers = await balancers.owners(US)
        assert all(owner.cluster == US for owner in leftovers), "owners of another cluster"
        for owner in sorted({*leftovers, *wanted}, key=lambda owner: owner.uid):
            await settle(balancers, harness.wish(owner, wanted.get(owner)))


def _of(harness: BalancersHarness, cluster: str) -> dict[Owner, Built]:
    return {owner: built for owner, built in harness.built().items() if owner.cluster == cluster}


def hold_changes(
    make: Make, loop_factory: LoopFactory, examples: int, *, shrink: bool = True
) -> None:
    @_settings(examples, shrink=shrink)
    @given(SPECS, SPECS)
    def law(first: BalancerSpec, later: BalancerSpec) -> None:
        run(_changes(make(), first, later), loop_factory)

    law()


async def _changes(harness: BalancersHarness, first: BalancerSpec, later: BalancerSpec) -> None:
    owner = Owner(US, "u9")
    async with harness.connect() as balancers:
        wish = harness.wish(owner, first)
        assert balancers.changes(wish, await settle(balancers, wish)) == ()

        wish = harness.wish(owner, later)
        seen = (await balancers.observe([wish], deep=True))[owner]
        changes = balancers.changes(wish, seen)
        assert changes == balancers.changes(wish, seen), "changes is not pure"
        for change in changes:
            assert isinstance(change.effect, Effect)
            assert isinstance(change.part, Part)
            assert change.summary, "a line of the plan is empty"
            await _apply_twice(balancers, change, seen)
        await settle(balancers, wish)

    built = harness.built()[owner]
    assert built.ports == {listener.port for listener in later.listeners}
    assert built.members == {node.name for node in later.members}
    assert harness.strays() == 0


async def _apply_twice(balancers: Balancers[Any, Any], change: object, seen: object) -> None:
    for _ in range(2):
        try:
            await balancers.apply(change, seen)
        except Conflict:
            return


async def gone_is_deleted(harness: BalancersHarness) -> None:
    owner = Owner(US, "u1")
    async with harness.connect() as balancers:
        await settle(balancers, harness.wish(owner, FOREIGN))
        wish = harness.wish(owner, None)
        seen = (await balancers.observe([wish], deep=True))[owner]
        changes = balancers.changes(wish, seen)
        for _ in range(2):
            for change in changes:
                await balancers.apply(change, seen)
        await settle(balancers, wish)

    assert harness.built() == {}
    assert harness.strays() == 0


def _settings(examples: int, *, shrink: bool) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate, *((Phase.shrink,) if shrink else ())),
        suppress_health_check=[HealthCheck.too_slow],
    )
