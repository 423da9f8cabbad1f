"""Each law on keeping and identifying balancers is broken by the defect that it is about."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from pileus.cloud.balancer import Ingress, Part, PortStatus, Wish
from pileus.cloud.errors import CloudError, Conflict, Misconfigured
from pileus.testing.conformance import abilities, adoption, identity, repair
from pileus.testing.conformance.harness import run
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.contract.parts import (
    Change,
    Claim,
    Create,
    PartsBalancers,
    RemoveListener,
    Rules,
    Seen,
    SetRules,
)
from tests.contract.parts_harness import PartsHarness

Make = Callable[[], PartsHarness]


class StampsInItsMemory(PartsBalancers):
    def __init__(self, api: Any) -> None:
        super().__init__(api)
        self.api.stamps.clear()


class LosesTheBalancerFromAfar(PartsBalancers):
    def look(self, wish: Wish, *, deep: bool) -> Seen:
        seen = super().look(wish, deep=deep)
        return replace(seen, balancer=None) if seen.is_shallow else seen


class ReportsFromNearAlone(PartsBalancers):
    def look(self, wish: Wish, *, deep: bool) -> Seen:
        seen = super().look(wish, deep=deep)
        if seen.is_shallow or seen.balancer is None:
            return seen
        return replace(seen, balancer=replace(seen.balancer, annotations={"acme.example/id": "1"}))


class KeepsTheStampHalfWay(PartsBalancers):
    def unstamp(self, id_: str) -> None:
        pass


class StampsFirst(PartsBalancers):
    def mend(self, wanted: Create, seen: Seen) -> tuple[Change, ...]:
        self.api.stamps[seen.id] = self.wished.fingerprint
        return super().mend(wanted, seen)

    def look(self, wish: Wish, *, deep: bool) -> Seen:
        self.wished = wish
        return super().look(wish, deep=deep)

    def unstamp(self, id_: str) -> None:
        pass


class NeverLooksDeep(PartsBalancers):
    def look(self, wish: Wish, *, deep: bool) -> Seen:
        return super().look(wish, deep=False)


class CallsPortsMembers(PartsBalancers):
    def mend(self, wanted: Create, seen: Seen) -> tuple[Change, ...]:
        return tuple(
            replace(change, part=Part.MEMBERS) if isinstance(change, RemoveListener) else change
            for change in super().mend(wanted, seen)
        )


class CallsRulesARecord(PartsBalancers):
    def mend(self, wanted: Create, seen: Seen) -> tuple[Change, ...]:
        return tuple(
            replace(change, part=Part.RECORD) if isinstance(change, SetRules) else change
            for change in super().mend(wanted, seen)
        )


class SetsRulesAtCreationAlone(PartsBalancers):
    def mend(self, wanted: Create, seen: Seen) -> tuple[Change, ...]:
        return tuple(c for c in super().mend(wanted, seen) if not isinstance(c, SetRules))


class RollsBackByDeleting(PartsBalancers):
    async def apply(self, change: Change, seen: Seen) -> Seen:
        try:
            return await super().apply(change, seen)
        except CloudError:
            self.api.drop(seen.id)
            raise


class StopsWhenTheParentIsGone(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if wish.spec is None and not seen.id:
            return ()
        return super().changes(wish, seen)


class IdentifiesByName(PartsBalancers):
    def look(self, wish: Wish, *, deep: bool) -> Seen:
        seen = super().look(wish, deep=deep)
        same = next((i for i, name in self.api.names.items() if name == wish.name != ""), "")
        return self.parts(wish.owner, same, seen.address) if same and not seen.id else seen


class IgnoresAdoption(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return super().changes(replace(wish, adopts=""), seen)


class AdoptsTheUnmarkedAlone(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        if named is not None and named.mark is not None and named.mark[0] == wish.owner.cluster:
            named = None
        return super().adopt(wish, named)


class AdoptsFromAnyone(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        if named is None:
            return super().adopt(wish, named)
        claim, *members = super().adopt(wish, replace(named, mark=None))
        assert isinstance(claim, Claim)
        return replace(claim, was=named.mark), *members


class AdoptsForAnyone(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        return super().adopt(replace(wish, may_use_foreign=True), named)


class MarksBeforeItRefuses(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        if named is not None and not wish.may_use_foreign:
            self.api.balancers[named.id] = (wish.owner.cluster, wish.owner.uid)
        return super().adopt(wish, named)


class TellsTenantsWhoseItIs(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        if not wish.may_use_foreign and named is not None:
            raise Misconfigured(f"balancer {named.id} belongs to {named.mark}")
        return super().adopt(wish, named)


class HidesWhatIsNamed(PartsBalancers):
    def look(self, wish: Wish, *, deep: bool) -> Seen:
        seen = super().look(wish, deep=deep)
        return seen if seen.id else replace(seen, balancer=None)


class ClaimsWithMembers(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        claim, *members = super().adopt(wish, named)
        return replace(claim, part=Part.MEMBERS), *members


class AdoptsAllOrNothing(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        return super().adopt(wish, named)[:1]


class PlansTheMarkAndMembersAlone(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        claim, *mending = super().adopt(wish, named)
        return claim, *(change for change in mending if change.part is Part.MEMBERS)


class PlansWhatItNeverDoes(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        return *super().adopt(wish, named), SetRules(Rules(), summary="firewall")

    def perform(self, change: Change, seen: Seen) -> None:
        if change.summary == "firewall":
            raise Conflict("not now")
        super().perform(change, seen)


class RemovesPortsWithTheMark(PartsBalancers):
    def claim(self, change: Claim) -> None:
        super().claim(change)
        found = [i for i, (of, _) in self.api.listeners.items() if of == change.id]
        for listener in found[1:]:
            del self.api.listeners[listener]
            self.api.members = {one for one in self.api.members if one[0] != listener}


class MarksOthersWithIt(PartsBalancers):
    def claim(self, change: Claim) -> None:
        super().claim(change)
        for id_ in self.api.balancers.keys() - {change.id}:
            self.api.rules[id_] = Rules(sticky=7)


class NamesOthersInItsPlan(PartsBalancers):
    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        claim, *mending = super().adopt(wish, named)
        summary = f"mark, as of {', '.join(sorted(self.api.balancers))}"
        return replace(claim, summary=summary), *mending


class PlansTheMarkAloneFromAfar(PartsBalancers):
    def look(self, wish: Wish, *, deep: bool) -> Seen:
        self.is_deep = deep
        return super().look(wish, deep=deep)

    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        found = super().adopt(wish, named)
        return found if self.is_deep else found[:1]


class Publishes(PartsBalancers):
    """Publishes one address, which a defect may spoil."""

    ingress = Ingress(ip="192.0.2.1", hostname="lb.example")

    def look(self, wish: Wish, *, deep: bool) -> Seen:
        seen = super().look(wish, deep=deep)
        if seen.balancer is None:
            return seen
        return replace(seen, balancer=replace(seen.balancer, ingress=(self.published(wish),)))

    def published(self, wish: Wish) -> Ingress:
        listeners = wish.spec.listeners if wish.spec else ()
        ports = tuple(PortStatus(each.port, error="acme.example/InUse") for each in listeners)
        return replace(self.ingress, ports=ports)


class PublishesNoAddress(Publishes):
    ingress = Ingress()


class PublishesANameAsIp(Publishes):
    ingress = Ingress(ip="lb.example")


class PublishesAnIpAsName(Publishes):
    ingress = Ingress(hostname="192.0.2.1")


class PublishesPortsOfYesterday(Publishes):
    def published(self, wish: Wish) -> Ingress:
        return replace(self.ingress, ports=(PortStatus(1), PortStatus(2)))


class PublishesSentencesAsErrors(Publishes):
    def published(self, wish: Wish) -> Ingress:
        found = super().published(wish)
        return replace(found, ports=tuple(replace(each, error="is in use") for each in found.ports))


def on_one(law: Callable[[Any], Any]) -> Callable[[Make], None]:
    return lambda make: run(law(make()), VirtualTimeLoop)


LAWS: dict[str, Callable[[Make], None]] = {
    **{
        law.__name__: on_one(law)
        for law in (
            repair.quick_check_finds_nothing,
            repair.manual_changes_are_undone,
            repair.members_alone,
            repair.records_alone,
            abilities.affinity_is_as_declared,
            abilities.source_ranges_are_as_declared,
            abilities.requests_are_as_declared,
            abilities.unnamed_members_are_accepted,
            abilities.registering_again_keeps_the_place,
            abilities.members_that_stay_are_never_removed,
            abilities.a_deleted_machine_harms_no_other_member,
            repair.addresses_can_be_published,
            repair.orphans_are_deleted,
            identity.names_are_no_identity,
            identity.named_by_the_user_is_adopted,
            identity.named_without_being_ours,
            identity.of_another_cluster_is_refused,
            identity.a_tenant_reaches_nothing_foreign,
            identity.an_address_of_others_is_refused,
            identity.a_load_balancer_keeps_its_own_address,
        )
    },
    "adoption_does_what_its_plan_shows": lambda make: adoption.adoption_does_what_its_plan_shows(
        make, VirtualTimeLoop
    ),
    "crash_half_way_is_seen": lambda make: repair.crash_half_way_is_seen(make, VirtualTimeLoop),
    "failures_delete_nothing": lambda make: repair.failures_delete_nothing(make, VirtualTimeLoop),
}
DEFECTS: Sequence[tuple[type[PartsBalancers], set[str]]] = [
    (PartsBalancers, set()),
    (StampsInItsMemory, {"quick_check_finds_nothing"}),
    (LosesTheBalancerFromAfar, {"quick_check_finds_nothing"}),
    (ReportsFromNearAlone, {"quick_check_finds_nothing"}),
    (KeepsTheStampHalfWay, {"crash_half_way_is_seen"}),
    (StampsFirst, {"crash_half_way_is_seen"}),
    (NeverLooksDeep, {"manual_changes_are_undone"}),
    (CallsPortsMembers, {"members_alone", "adoption_does_what_its_plan_shows"}),
    (CallsRulesARecord, {"records_alone", "adoption_does_what_its_plan_shows"}),
    (
        SetsRulesAtCreationAlone,
        {
            "affinity_is_as_declared",
            "source_ranges_are_as_declared",
            "adoption_does_what_its_plan_shows",
            "manual_changes_are_undone",
            "crash_half_way_is_seen",
        },
    ),
    (RollsBackByDeleting, {"failures_delete_nothing"}),
    (StopsWhenTheParentIsGone, {"orphans_are_deleted", "adoption_does_what_its_plan_shows"}),
    (IdentifiesByName, {"names_are_no_identity"}),
    (
        IgnoresAdoption,
        {
            "adoption_does_what_its_plan_shows",
            "named_by_the_user_is_adopted",
            "named_without_being_ours",
            "of_another_cluster_is_refused",
            "a_tenant_reaches_nothing_foreign",
        },
    ),
    (AdoptsForAnyone, {"a_tenant_reaches_nothing_foreign"}),
    (MarksBeforeItRefuses, {"a_tenant_reaches_nothing_foreign"}),
    (TellsTenantsWhoseItIs, {"a_tenant_reaches_nothing_foreign"}),
    (AdoptsTheUnmarkedAlone, {"named_by_the_user_is_adopted", "adoption_does_what_its_plan_shows"}),
    (AdoptsFromAnyone, {"of_another_cluster_is_refused"}),
    (HidesWhatIsNamed, {"named_without_being_ours"}),
    (ClaimsWithMembers, {"named_without_being_ours"}),
    (AdoptsAllOrNothing, {"named_without_being_ours", "adoption_does_what_its_plan_shows"}),
    (PlansTheMarkAndMembersAlone, {"adoption_does_what_its_plan_shows"}),
    (PlansWhatItNeverDoes, {"adoption_does_what_its_plan_shows"}),
    (RemovesPortsWithTheMark, {"adoption_does_what_its_plan_shows"}),
    (MarksOthersWithIt, {"adoption_does_what_its_plan_shows"}),
    (NamesOthersInItsPlan, {"adoption_does_what_its_plan_shows"}),
    (PlansTheMarkAloneFromAfar, {"adoption_does_what_its_plan_shows"}),
    (Publishes, set()),
    (PublishesNoAddress, {"addresses_can_be_published"}),
    (PublishesANameAsIp, {"addresses_can_be_published"}),
    (PublishesAnIpAsName, {"addresses_can_be_published"}),
    (PublishesPortsOfYesterday, {"addresses_can_be_published"}),
    (PublishesSentencesAsErrors, {"addresses_can_be_published"}),
]


@pytest.mark.parametrize(
    ("defect", "expected"), DEFECTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_defect_is_caught_by_its_law(defect: type[PartsBalancers], expected: set[str]):
    broken: set[str] = set()
    for name, law in LAWS.items():
        try:
            law(partial(PartsHarness, defect))
        except (AssertionError, CloudError, ExceptionGroup):
            broken.add(name)

    assert broken == expected
