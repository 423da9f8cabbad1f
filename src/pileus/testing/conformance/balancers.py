"""The laws for `Balancers`, under crashes, lost answers and manual changes.

Every law is kept by an honest refusal: what `Abilities` says that the cloud cannot do is not asked
for, and a provider that cannot adopt raises `Unsupported`.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from pileus.cloud.balancer import Balancers, BalancerSpec, Effect, Owner, Part
from pileus.cloud.errors import Conflict
from pileus.dataclass import dataclass
from pileus.testing.conformance import abilities, adoption, costs, identity, repair
from pileus.testing.conformance.convergence import (
    SMALL,
    THEM,
    US,
    Make,
    built_of,
    settle,
    spec_of,
    wish_for,
)
from pileus.testing.conformance.harness import BalancersHarness, Built, Crash, LoopFactory, run


@dataclass(frozen=True, slots=True)
class Vandal:
    """Someone deletes our load balancer manually."""


@dataclass(frozen=True, slots=True)
class Vanish:
    """The Service is deleted by force, and no process hears of it."""


SPECS = st.builds(
    spec_of,
    st.frozensets(st.integers(1, 4), min_size=1),
    st.frozensets(st.sampled_from("abcd")),
    st.none() | st.just(60),
    st.frozensets(st.sampled_from(["10.0.0.0/8", "192.0.2.0/24"])),
)
EVENTS = SPECS | st.none() | st.builds(Vandal) | st.builds(Vanish)
HISTORIES = st.lists(st.tuples(st.sampled_from(["u1", "u2", "u3"]), EVENTS), max_size=6)
FOREIGN = SMALL


class BalancersLaws:
    examples: ClassVar[int] = 100
    """How many histories are tried."""

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def make(self) -> BalancersHarness:
        """Returns a new, empty cloud."""
        raise NotImplementedError

    def test_any_history_ends_in_the_desired_state_and_touches_nothing_foreign(self) -> None:
        hold_history(self.make, self.new_loop, self.examples)

    def test_changes_are_pure_and_end_and_apply_is_idempotent(self) -> None:
        hold_changes(self.make, self.new_loop, self.examples)

    def test_deleting_a_missing_load_balancer_succeeds(self) -> None:
        run(gone_is_deleted(self.make()), self.new_loop)

    def test_a_quick_check_of_an_up_to_date_load_balancer_finds_nothing_to_do(self) -> None:
        run(repair.quick_check_finds_nothing(self.make()), self.new_loop)

    def test_a_crash_half_way_is_followed_by_a_check_of_everything(self) -> None:
        repair.crash_half_way_is_seen(self.make, self.new_loop)

    def test_a_full_check_finds_manual_changes_and_they_are_undone(self) -> None:
        run(repair.manual_changes_are_undone(self.make()), self.new_loop)

    def test_a_change_of_members_touches_nothing_else(self) -> None:
        run(repair.members_alone(self.make()), self.new_loop)

    def test_a_change_of_the_record_touches_nothing_else(self) -> None:
        run(repair.records_alone(self.make()), self.new_loop)

    def test_addresses_and_port_states_can_be_published(self) -> None:
        run(repair.addresses_can_be_published(self.make()), self.new_loop)

    def test_trap_3_a_load_balancer_of_the_same_name_is_not_ours(self) -> None:
        run(identity.names_are_no_identity(self.make()), self.new_loop)

    def test_trap_4_parts_are_deleted_when_their_parent_is_gone(self) -> None:
        run(repair.orphans_are_deleted(self.make()), self.new_loop)

    def test_a_list_that_is_empty_once_leaves_no_part_behind(self) -> None:
        repair.one_empty_list_leaves_nothing(self.make, self.new_loop)

    def test_trap_9_a_failure_deletes_nothing_that_existed_before(self) -> None:
        repair.failures_delete_nothing(self.make, self.new_loop)

    def test_trap_13_affinity_is_updated_as_declared(self) -> None:
        run(abilities.affinity_is_as_declared(self.make()), self.new_loop)

    def test_trap_13_source_ranges_are_updated_as_declared(self) -> None:
        run(abilities.source_ranges_are_as_declared(self.make()), self.new_loop)

    def test_source_ranges_that_admit_no_one_open_nothing(self) -> None:
        run(abilities.a_restriction_never_opens(self.make()), self.new_loop)

    def test_trap_16_a_load_balancer_that_the_user_names_is_adopted(self) -> None:
        run(identity.named_by_the_user_is_adopted(self.make()), self.new_loop)

    def test_adoption_does_what_its_plan_shows_and_nothing_else(self) -> None:
        adoption.adoption_does_what_its_plan_shows(self.make, self.new_loop)

    def test_members_of_a_named_load_balancer_are_changed_without_adopting_it(self) -> None:
        run(identity.named_without_being_ours(self.make()), self.new_loop)

    def test_a_load_balancer_of_another_cluster_is_not_adopted(self) -> None:
        run(identity.of_another_cluster_is_refused(self.make()), self.new_loop)

    def test_a_tenant_without_permission_reaches_nothing_foreign(self) -> None:
        run(identity.a_tenant_reaches_nothing_foreign(self.make()), self.new_loop)

    def test_an_address_of_others_is_not_given_to_a_service_that_asks_for_it(self) -> None:
        run(identity.an_address_of_others_is_refused(self.make()), self.new_loop)
        run(identity.a_load_balancer_keeps_its_own_address(self.make()), self.new_loop)

    def test_observations_cost_no_more_requests_than_declared(self) -> None:
        run(abilities.requests_are_as_declared(self.make()), self.new_loop)

    def test_ip_families_are_built_or_refused_as_declared(self) -> None:
        run(abilities.families_are_as_declared(self.make()), self.new_loop)

    def test_changes_cost_no_more_requests_than_declared(self) -> None:
        run(abilities.changes_cost_no_more_than_declared(self.make()), self.new_loop)

    def test_nodes_of_stopped_machines_are_members_unless_declared_otherwise(self) -> None:
        run(abilities.stopped_machines_join_as_declared(self.make()), self.new_loop)

    def test_nodes_without_a_provider_id_are_members_unless_declared_otherwise(self) -> None:
        run(abilities.unnamed_members_are_accepted(self.make()), self.new_loop)

    def test_a_node_that_registers_again_keeps_its_place(self) -> None:
        run(abilities.registering_again_keeps_the_place(self.make()), self.new_loop)

    def test_the_largest_service_costs_the_event_loop_little(self) -> None:
        run(costs.the_largest_service_is_cheap(self.make()), self.new_loop)

    def test_a_large_load_balancer_costs_the_event_loop_little(self) -> None:
        run(costs.a_large_load_balancer_is_cheap(self.make()), self.new_loop)

    def test_members_that_stay_are_never_removed(self) -> None:
        run(abilities.members_that_stay_are_never_removed(self.make()), self.new_loop)

    def test_two_nodes_with_one_address_are_one_member(self) -> None:
        run(abilities.one_address_is_one_member(self.make()), self.new_loop)

    def test_a_deleted_machine_harms_no_other_member(self) -> None:
        run(abilities.a_deleted_machine_harms_no_other_member(self.make()), self.new_loop)


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
        await settle(harness, theirs, wish_for(harness, Owner(THEM, "u1"), FOREIGN))
    before = _of(harness, THEM)
    wanted: dict[Owner, BalancerSpec | None] = {}
    for uid, event in history:
        owner = Owner(US, uid)
        await _happen(harness, owner, event, wanted, lambda: chance.random() < rate)
    await _restart(harness, wanted)

    expected = {o: built_of(harness, spec) for o, spec in wanted.items() if spec is not None}
    assert _of(harness, US) == expected
    assert _of(harness, THEM) == before, "a load balancer of another cluster was touched"
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
            wish = wish_for(harness, owner, event)
            harness.crash_when(chance)
            try:
                async with harness.connect() as balancers:
                    await settle(harness, balancers, wish)
            except Crash:
                pass
            harness.crash_when(lambda: False)
        case _:
            raise AssertionError(event)


async def _restart(harness: BalancersHarness, wanted: dict[Owner, BalancerSpec | None]) -> None:
    """A new process reaches every desired state, and finds leftovers by their marks alone."""
    async with harness.connect() as balancers:
        leftovers = await balancers.owners(US)
        assert all(owner.cluster == US for owner in leftovers), "owners of another cluster"
        for owner in sorted({*leftovers, *wanted}, key=lambda owner: owner.uid):
            await settle(harness, balancers, wish_for(harness, owner, wanted.get(owner)))


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
        wish = wish_for(harness, owner, first)
        assert balancers.changes(wish, await settle(harness, balancers, wish)) == ()

        wish = wish_for(harness, owner, later)
        seen = (await balancers.observe([wish], deep=True))[owner]
        changes = balancers.changes(wish, seen)
        assert changes == balancers.changes(wish, seen), "changes is not pure"
        for change in changes:
            assert isinstance(change.effect, Effect)
            assert isinstance(change.part, Part)
            assert change.summary, "a line of the plan is empty"
            await _apply_twice(balancers, change, seen)
        await settle(harness, balancers, wish)

    assert harness.built()[owner] == built_of(harness, later)
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
        await settle(harness, balancers, wish_for(harness, owner, FOREIGN))
        wish = harness.wish(owner, None)
        seen = (await balancers.observe([wish], deep=True))[owner]
        changes = balancers.changes(wish, seen)
        for _ in range(2):
            for change in changes:
                await balancers.apply(change, seen)
        await settle(harness, balancers, wish)

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
