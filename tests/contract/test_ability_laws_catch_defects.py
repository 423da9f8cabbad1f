"""A provider that declares an ability it does not have fails a law that names the ability."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.abilities import Abilities, Affinity, PagedList, Requests
from pileus.cloud.balancer import BalancerState, Owner, Wish
from pileus.cloud.errors import CloudError, Conflict, Rejected, Unsupported
from pileus.cloud.model import Route
from pileus.testing.conformance import abilities, identity, routes
from pileus.testing.conformance.balancers import BalancersLaws
from pileus.testing.conformance.harness import run
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.contract.machines import RouteTable, RouteTableHarness
from tests.contract.parts import Api, Change, Create, PartsBalancers, Rules, Seen, SetMembers
from tests.contract.parts_harness import PartsHarness

PROVISIONING = Abilities(changes_while_provisioning=True)


def fails(law: Callable[..., Any], harness: Any, message: str) -> None:
    run(law(type(harness)(abilities=harness.abilities)), VirtualTimeLoop)  # kept without the defect
    with pytest.raises(AssertionError, match=message):
        run(law(harness), VirtualTimeLoop)


class RefusesAffinity(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if wish.spec is not None and wish.spec.sticky_seconds:
            raise Unsupported("no session affinity here")
        return super().changes(wish, seen)


class IgnoresAffinity(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        spec = wish.spec and replace(wish.spec, sticky_seconds=None)
        return super().changes(replace(wish, spec=spec), seen)


class IgnoresSources(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        spec = wish.spec and replace(wish.spec, source_ranges=frozenset())
        return super().changes(replace(wish, spec=spec), seen)


class DropsSourcesOfOtherFamilies(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if wish.spec is not None and wish.spec.admits_no_client:
            wish = replace(wish, spec=replace(wish.spec, source_ranges=frozenset()))
        return super().changes(wish, seen)


class ReadsEachBalancerAlone(PartsBalancers):
    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        seen: dict[Owner, Seen] = {}
        for wish in wishes:
            self.api.step()
            seen |= await super().observe([wish], deep=deep)
        return seen


class NeedsProviderIds(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        spec = wish.spec
        if spec is not None:
            known = frozenset(node for node in spec.members if node.provider_id)
            spec = replace(spec, members=known)
        return super().changes(replace(wish, spec=spec), seen)


class NeedsRunningMachines(PartsBalancers):
    def __init__(self, api: Api) -> None:
        super().__init__(api)
        api.accepts_stopped = False

    def possible(self, wanted: Create, seen: Seen) -> frozenset[str]:
        return super().possible(wanted, seen) - self.api.stopped


class HasNoIPv6(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if wish.spec is not None and "IPv6" in wish.spec.families:
            raise Unsupported("no IPv6 here")
        return super().changes(wish, seen)


class IgnoresFamilies(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        spec = wish.spec and replace(wish.spec, families=("IPv4",))
        return super().changes(replace(wish, spec=spec), seen)


class AsksAgainAndAgain(PartsBalancers):
    async def apply(self, change: Change, seen: Seen) -> Seen:
        for _ in range(3):
            self.api.step()
        return await super().apply(change, seen)


class EmptiesMembersFirst(PartsBalancers):
    def alter(self, change: Any, seen: Seen) -> None:
        if isinstance(change, SetMembers):
            self.api.members = {m for m in self.api.members if m[0] != change.listener}
            self.api.step()
        super().alter(change, seen)


class RefusesAllForOne(PartsBalancers):
    def possible(self, wanted: Create, seen: Seen) -> frozenset[str]:
        return wanted.members

    def alter(self, change: Any, seen: Seen) -> None:
        if isinstance(change, SetMembers) and change.members & self.api.deleted:
            raise Rejected("unknown machine")
        super().alter(change, seen)


class Provisions(PartsBalancers):
    """What is busy may be changed."""

    def parts(self, owner: Owner, id_: str, address: str) -> Seen:
        seen = super().parts(owner, id_, address)
        if seen.balancer is None or seen.balancer.state is not BalancerState.PENDING:
            return seen
        state = replace(seen.balancer, state=BalancerState.PROVISIONING)
        return replace(seen, balancer=state)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        busy, self.api.busy = self.api.busy, set()
        try:
            return await super().apply(change, seen)
        finally:
            self.api.busy |= busy & self.api.balancers.keys()


class RefusesWhileProvisioning(Provisions):
    async def apply(self, change: Change, seen: Seen) -> Seen:
        if seen.balancer and seen.balancer.state is BalancerState.PROVISIONING:
            raise Conflict("not yet")
        return await super().apply(change, seen)


BALANCERS = [
    (RefusesAffinity, Abilities(), abilities.affinity_is_as_declared, "affinity=seconds"),
    (IgnoresAffinity, Abilities(), abilities.affinity_is_as_declared, "declared as 'seconds'"),
    (
        IgnoresAffinity,
        Abilities(affinity=Affinity.ON_OFF),
        abilities.affinity_is_as_declared,
        "declared as 'on-off'",
    ),
    (
        IgnoresSources,
        Abilities(),
        abilities.source_ranges_are_as_declared,
        "abilities.source_ranges is declared",
    ),
    (
        DropsSourcesOfOtherFamilies,
        Abilities(),
        abilities.a_restriction_never_opens,
        "is open to everyone",
    ),
    (
        ReadsEachBalancerAlone,
        Abilities(requests=Requests()),
        abilities.requests_are_as_declared,
        "made 5 requests, but abilities.requests .* allows 1",
    ),
    (
        ReadsEachBalancerAlone,
        Abilities(requests=Requests(lists=(PagedList(page_size=2, per_balancer=1),))),
        abilities.requests_are_as_declared,
        "made 5 requests, but abilities.requests .* allows 3",
    ),
    (
        AsksAgainAndAgain,
        Abilities(requests=Requests(per_change=1)),
        abilities.changes_cost_no_more_than_declared,
        "made 3 requests, but abilities.requests .* allows 1",
    ),
    (
        NeedsRunningMachines,
        Abilities(),
        abilities.stopped_machines_join_as_declared,
        "declare abilities.members_running",
    ),
    (
        HasNoIPv6,
        Abilities(),
        abilities.families_are_as_declared,
        r"families=\['IPv4', 'IPv6'\], dual_stack=True; asked for",
    ),
    (
        IgnoresFamilies,
        Abilities(),
        abilities.families_are_as_declared,
        "a load balancer with IPv6 is declared .* and was built with IPv4",
    ),
    (
        IgnoresFamilies,
        Abilities(families=frozenset({"IPv4", "IPv6"})),
        abilities.families_are_as_declared,
        "was built with IPv4",
    ),
    (
        NeedsProviderIds,
        Abilities(),
        abilities.unnamed_members_are_accepted,
        "declare abilities.members_by_provider_id",
    ),
    (NeedsProviderIds, Abilities(), abilities.registering_again_keeps_the_place, "lost its place"),
    (
        EmptiesMembersFirst,
        Abilities(),
        abilities.members_that_stay_are_never_removed,
        "member b lost its place",
    ),
    (
        Provisions,
        Abilities(),
        abilities.affinity_is_as_declared,
        "without declaring abilities.changes_while_provisioning",
    ),
    (
        RefusesWhileProvisioning,
        PROVISIONING,
        abilities.affinity_is_as_declared,
        "PROVISIONING refused a change: not yet",
    ),
]


@pytest.mark.parametrize(
    ("defect", "declared", "law", "message"),
    BALANCERS,
    ids=[f"{defect.__name__}-{law.__name__}" for defect, _, law, _ in BALANCERS],
)
def test_a_balancer_ability_that_is_declared_and_missing_is_named(
    defect: type[PartsBalancers], declared: Abilities, law: Callable[..., Any], message: str
):
    fails(law, PartsHarness(defect, abilities=declared), message)


def test_a_deleted_machine_may_not_keep_others_from_joining():
    run(abilities.a_deleted_machine_harms_no_other_member(PartsHarness()), VirtualTimeLoop)

    with pytest.raises((AssertionError, CloudError)):
        run(
            abilities.a_deleted_machine_harms_no_other_member(PartsHarness(RefusesAllForOne)),
            VirtualTimeLoop,
        )


class RefusesSharedAddresses(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        members = wish.spec.members if wish.spec else ()
        if len({one.addresses for one in members}) < len(members):
            raise Rejected("already an entity with that address")
        return super().changes(wish, seen)


def test_a_provider_that_refuses_two_nodes_with_one_address_is_found():
    run(abilities.one_address_is_one_member(PartsHarness()), VirtualTimeLoop)

    with pytest.raises(CloudError, match="already an entity"):
        run(
            abilities.one_address_is_one_member(PartsHarness(RefusesSharedAddresses)),
            VirtualTimeLoop,
        )


class CannotAdopt(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        raise Unsupported("load balancers of this cloud cannot be adopted")


class TestHonestRefusals(BalancersLaws):
    """A cloud without affinity, source ranges and adoption keeps every law."""

    examples = 20

    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        able = Abilities(affinity=Affinity.NONE, source_ranges=False)
        return PartsHarness(CannotAdopt, abilities=able)


class Limited(HasNoIPv6, NeedsRunningMachines):
    pass


class TestDeclaredLimits(BalancersLaws):
    """A cloud without IPv6 that accepts only running machines keeps every law if it says so."""

    examples = 20

    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        able = Abilities(families=frozenset({"IPv4"}), members_running=True)
        return PartsHarness(Limited, abilities=able)


def test_a_family_that_is_not_declared_and_built_all_the_same_is_named():
    able = Abilities(dual_stack=False)
    with pytest.raises(AssertionError, match=r"do not allow a load balancer with IPv4 and IPv6"):
        run(abilities.families_are_as_declared(PartsHarness(abilities=able)), VirtualTimeLoop)


class TestBalancersThatAreProvisioning(BalancersLaws):
    examples = 20

    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return PartsHarness(Provisions, abilities=PROVISIONING)


class AdoptsHalf(CannotAdopt):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        self.api.rules[wish.adopts] = Rules(sticky=1)
        return super().adopt(wish, named)


def test_a_refusal_that_changes_something_is_not_honest():
    with pytest.raises(AssertionError, match="adoption was refused, but something was changed"):
        run(identity.named_by_the_user_is_adopted(PartsHarness(AdoptsHalf)), VirtualTimeLoop)


class Unmarked(RouteTable):
    pass


class Marked(RouteTable):
    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        errors = await super().create(cluster, routes)
        self.table |= {
            there: replace(route, cluster=cluster)
            for there, route in self.table.items()
            if route.cluster is None
        }
        return errors


def test_marks_on_routes_that_are_declared_and_missing_are_named():
    class Foreign(RouteTableHarness):
        def add_foreign(self, destination: str) -> None:
            self.table[destination] = Route(destination=destination, target=None, cluster="theirs")

    declared = Abilities(marks_routes=True)
    run(routes.marks_are_as_declared(Foreign(Marked, abilities=declared)), VirtualTimeLoop)

    with pytest.raises(AssertionError, match="abilities.marks_routes is declared"):
        run(routes.marks_are_as_declared(Foreign(Unmarked, abilities=declared)), VirtualTimeLoop)
