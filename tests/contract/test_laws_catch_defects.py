"""A law that no defect breaks is none: each planted defect here is caught."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.balancer import Owner, Wish
from pileus.cloud.errors import CloudError, Misconfigured, NotFound
from pileus.cloud.model import Absent, InstanceState, NodeRef, Route
from pileus.testing.conformance import (
    balancers,
    costs,
    identity,
    instances,
    repair,
    routes,
    ssh_keys,
)
from pileus.testing.conformance.harness import run
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.contract.keyring import Keyring, KeyringHarness
from tests.contract.machines import (
    MachineInstances,
    MachinesHarness,
    RouteTable,
    RouteTableHarness,
)
from tests.contract.parts import (
    AddListener,
    Change,
    Create,
    Delete,
    Mark,
    PartsBalancers,
    Seen,
    SetMembers,
    Withdraw,
)
from tests.contract.parts_harness import PartsHarness


class MarksAfterCreation(PartsBalancers):
    def create(self, change: Create) -> None:
        id_ = self.api.new()
        self.api.balancers[id_] = None
        self.api.names[id_], self.api.rules[id_] = change.name, change.rules
        for port in sorted(change.ports):
            self.api.listen(id_, port, change.members)
        self.api.step()
        self.api.balancers[id_] = (change.owner.cluster, change.owner.uid)


class IdentifiesByUidAlone(PartsBalancers):
    def is_owners(self, mark: Mark | None, owner: Owner) -> bool:
        return mark is not None and mark[1] == owner.uid


class ForgetsAddressesOfOrphans(PartsBalancers):
    async def owners(self, cluster: str) -> frozenset[Owner]:
        marks = self.api.balancers.values()
        return frozenset(Owner(*mark) for mark in marks if mark and mark[0] == cluster)


class NamesOwnersOfOtherClusters(PartsBalancers):
    async def owners(self, cluster: str) -> frozenset[Owner]:
        return frozenset(Owner(*mark) for mark in self.api.balancers.values() if mark)


class IgnoresMembers(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return tuple(c for c in super().changes(wish, seen) if not isinstance(c, SetMembers))


class LeaksAddresses(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return tuple(c for c in super().changes(wish, seen) if not isinstance(c, Withdraw))


class AddsTwice(PartsBalancers):
    def perform(self, change: Change, seen: Seen) -> None:
        if isinstance(change, AddListener):
            self.api.listen(seen.id, change.port, change.members)
        else:
            super().perform(change, seen)


class CannotDeleteTwice(PartsBalancers):
    def perform(self, change: Change, seen: Seen) -> None:
        if isinstance(change, Delete) and seen.id not in self.api.balancers:
            raise NotFound(seen.id)
        super().perform(change, seen)


class DecidesByWhim(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        self.api.made += 1
        return tuple(
            replace(c, summary=f"{c.summary} {self.api.made}") for c in super().changes(wish, seen)
        )


BALANCER_DEFECTS = [
    MarksAfterCreation,
    IdentifiesByUidAlone,
    ForgetsAddressesOfOrphans,
    NamesOwnersOfOtherClusters,
    IgnoresMembers,
    LeaksAddresses,
    AddsTwice,
    CannotDeleteTwice,
    DecidesByWhim,
]


@pytest.mark.parametrize("defect", BALANCER_DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_of_balancers_is_caught(defect):
    def make() -> PartsHarness:
        return PartsHarness(defect)

    def laws() -> None:
        run(balancers.gone_is_deleted(make()), VirtualTimeLoop)
        balancers.hold_changes(make, VirtualTimeLoop, 100, shrink=False)
        balancers.hold_history(make, VirtualTimeLoop, 1000, shrink=False)

    with pytest.raises((AssertionError, CloudError, ExceptionGroup)):
        laws()


class WithdrawsAddressesWithTheirBalancerAlone(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        found = super().changes(wish, seen)
        return found if seen.id or wish.spec else ()


def test_a_part_that_a_list_lacked_once_and_that_stays_is_caught():
    repair.one_empty_list_leaves_nothing(PartsHarness, VirtualTimeLoop)

    with pytest.raises(AssertionError, match="list 0 was empty, and parts were left behind"):
        repair.one_empty_list_leaves_nothing(
            lambda: PartsHarness(WithdrawsAddressesWithTheirBalancerAlone), VirtualTimeLoop
        )


class IgnoresTheRequestedAddress(PartsBalancers):
    def check_address(self, requested: str) -> None:
        pass


class NamesTheUserOfTheAddress(PartsBalancers):
    def check_address(self, requested: str) -> None:
        if requested:
            raise Misconfigured(f"{requested} is used by {self.api.balancers}")


class CreatesBeforeItRefusesTheAddress(PartsBalancers):
    def check_address(self, requested: str) -> None:
        pass

    def create(self, change: Create) -> None:
        super().create(change)
        raise Misconfigured("the address is in use")


class OpensAPortBeforeItRefusesTheAddress(PartsBalancers):
    def check_address(self, requested: str) -> None:
        for id_ in [*self.api.balancers] if requested else ():
            self.api.listen(id_, 9, frozenset())
        super().check_address(requested)


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        (IgnoresTheRequestedAddress, "was not refused"),
        (NamesTheUserOfTheAddress, "the refusal discloses"),
        (CreatesBeforeItRefusesTheAddress, "it was refused, but something was changed"),
        (OpensAPortBeforeItRefusesTheAddress, "it was refused, but something was changed"),
    ],
)
def test_a_service_that_gets_or_changes_anything_by_an_address_of_others_is_caught(defect, message):
    with pytest.raises(AssertionError, match=message):
        run(identity.an_address_of_others_is_refused(PartsHarness(defect)), VirtualTimeLoop)


@pytest.mark.parametrize(
    ("defect", "message"),
    [
        (IgnoresTheRequestedAddress, "nothing is said about the address"),
        (NamesTheUserOfTheAddress, "it is disclosed that"),
    ],
)
def test_silence_about_the_address_of_an_existing_load_balancer_is_caught(defect, message):
    with pytest.raises(AssertionError, match=message):
        run(identity.a_load_balancer_keeps_its_own_address(PartsHarness(defect)), VirtualTimeLoop)


class ComparesEachListenerWithAllOthers(PartsBalancers):
    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        listeners = (*wish.spec.listeners,) if wish.spec else ()
        assert all(listeners.count(one) == 1 for one in listeners)
        return super().changes(wish, seen)


class ReadsAllMembersForEachListener(PartsBalancers):
    def members_of(self, seen: Seen) -> Mapping[str, frozenset[str]]:
        return {
            i: frozenset(one[1] for one in seen.members if one[0] == i) for i, _ in seen.listeners
        }


@pytest.mark.parametrize(
    ("defect", "law", "what"),
    [
        (ComparesEachListenerWithAllOthers, costs.the_largest_service_is_cheap, "many listeners"),
        (ReadsAllMembersForEachListener, costs.a_large_load_balancer_is_cheap, "no change"),
    ],
)
def test_a_provider_that_keeps_the_loop_busy_is_caught(defect, law, what):
    run(law(PartsHarness()), VirtualTimeLoop)

    with pytest.raises(AssertionError, match=f"of CPU time for {what}"):
        run(law(PartsHarness(defect)), VirtualTimeLoop)


class TakesFailureForAbsence(MachineInstances):
    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Any:
        if self.cloud.is_broken:
            return {node.name: Absent("nothing was found") for node in nodes}
        return await super().find(nodes, fresh=fresh)


class AnswersFromACache(MachineInstances):
    cached: Any = None

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Any:
        if self.cached is None:
            self.cached = await super().find(nodes, fresh=fresh)
        return {node.name: self.cached[node.name] for node in nodes if node.name in self.cached}


class TakesStoppedForAbsent(MachineInstances):
    def answer(self, name: Any) -> Any:
        if self.cloud.machines.get(name) is InstanceState.STOPPED:
            return Absent("it does not run")
        return super().answer(name)


class LeavesOutTheGone(MachineInstances):
    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Any:
        found = await super().find(nodes, fresh=fresh)
        return {name: answer for name, answer in found.items() if not isinstance(answer, Absent)}


class AnswersForEveryone(MachineInstances):
    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Any:
        everyone = [NodeRef(name=name) for name in {*self.cloud.machines, *(n.name for n in nodes)}]  # type: ignore[arg-type]
        return await super().find(everyone, fresh=fresh)


class SwallowsCancellation(MachineInstances):
    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Any:
        try:
            return await super().find(nodes, fresh=fresh)
        except asyncio.CancelledError:
            return {}


class SharesAnId(MachineInstances):
    def answer(self, name: Any) -> Any:
        answer = super().answer(name)
        return answer if isinstance(answer, Absent) else replace(answer, provider_id="mem://1")


INSTANCE_LAWS = [
    instances.each_has_its_own,
    instances.only_what_was_asked,
    instances.gone_is_absent,
    instances.no_memory_of_absence,
    instances.stopped_exists,
    instances.failure_is_not_absence,
    instances.cancellation_is_heard,
]
INSTANCE_DEFECTS = [
    (TakesFailureForAbsence, {"failure_is_not_absence"}),
    (
        AnswersFromACache,
        {"gone_is_absent", "no_memory_of_absence", "stopped_exists", "failure_is_not_absence"},
    ),
    (TakesStoppedForAbsent, {"stopped_exists"}),
    (LeavesOutTheGone, {"gone_is_absent"}),
    (AnswersForEveryone, {"only_what_was_asked"}),
    (SwallowsCancellation, {"cancellation_is_heard"}),
    (SharesAnId, {"each_has_its_own"}),
]


@pytest.mark.parametrize(
    ("defect", "expected"), INSTANCE_DEFECTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_defect_of_instances_is_caught_by_its_law(defect, expected):
    broken: set[str] = set()
    for law in INSTANCE_LAWS:
        try:
            run(law(MachinesHarness(defect)), VirtualTimeLoop)
        except (AssertionError, ExceptionGroup):
            broken.add(law.__name__)

    assert broken == expected


class FailsWhenThere(RouteTable):
    def errors(self, routes: Sequence[Route]) -> Any:
        return super().errors(routes) | {
            r: NotFound("x") for r in routes if r.destination in self.table
        }  # type: ignore[operator]


class DeletesEverything(RouteTable):
    async def delete(self, cluster: str, routes: Sequence[Route]) -> Any:
        self.table.clear()
        return {}


class HidesFailures(RouteTable):
    async def create(self, cluster: str, routes: Sequence[Route]) -> Any:
        await super().create(cluster, routes)
        return {}


@pytest.mark.parametrize(
    ("defect", "law"),
    [
        (FailsWhenThere, routes.created_once),
        (DeletesEverything, routes.foreign_stay),
        (DeletesEverything, routes.deleted_twice),
        (HidesFailures, routes.failure_names_which),
    ],
)
def test_a_defect_of_routes_is_caught(defect, law):
    with pytest.raises(AssertionError):
        run(law(RouteTableHarness(defect)), VirtualTimeLoop)


class TakesOver(Keyring):
    def put(self, cluster: str, keys: Any, ring: Any) -> None:
        ring |= dict.fromkeys(keys, cluster)


class MarksNothing(Keyring):
    def put(self, cluster: str, keys: Any, ring: Any) -> None:
        ring |= dict.fromkeys(keys, "")


class RemovesOthers(Keyring):
    def may_remove(self, owner: Any, cluster: str) -> bool:
        return True


class ForgetsToRemove(Keyring):
    def may_remove(self, owner: Any, cluster: str) -> bool:
        return False


class HidesAbsence(Keyring):
    def absent(self, nodes: Any) -> Any:
        return {}


class GivesToTheFirstOnly(Keyring):
    async def add(self, cluster: str, keys: Any, nodes: Any) -> Any:
        return await super().add(cluster, keys, nodes[:1])


@pytest.mark.parametrize(
    ("defect", "law"),
    [
        (TakesOver, ssh_keys.others_stay),
        (MarksNothing, ssh_keys.is_ours),
        (RemovesOthers, ssh_keys.others_stay),
        (ForgetsToRemove, ssh_keys.removed_twice),
        (HidesAbsence, ssh_keys.absent_fails_alone),
        (GivesToTheFirstOnly, ssh_keys.added_twice),
    ],
)
def test_a_defect_of_ssh_keys_is_caught(defect, law):
    with pytest.raises(AssertionError):
        run(law(KeyringHarness(defect)), VirtualTimeLoop)
