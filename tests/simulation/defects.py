"""Defects that are planted into the manager on purpose, to see that the simulation finds them.

They exist only here: each replaces names of the product for as long as a test runs.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace as changed

from pileus.controllers.ipam.blocks import Blocks, Found
from pileus.controllers.lifecycle import controller as lifecycle
from pileus.controllers.lifecycle.guard import Guard, Share, Suspect
from pileus.controllers.lifecycle.plan import Ownership
from pileus.controllers.service import plan as service_plan
from pileus.controllers.service import serving
from pileus.controllers.service.notes import Notes
from pileus.controllers.service.teller import Teller
from pileus.controllers.service.withdrawing import Withdrawing
from pileus.kube import informer
from pileus.kube.model.core_v1 import LoadBalancerIngress
from pileus.kube.store import Change, Deleted
from pileus.providers.local import balancers as provider
from pileus.providers.local import capabilities, ssh_keys
from pileus.providers.local import plan as provider_plan
from pileus.providers.local.model.records import Mark
from pileus.runtime.controller import Controller
from pileus.runtime.events import EventRecorder
from pileus.runtime.leadership import LeaseFence
from pileus.runtime.lease import Observed
from pileus.runtime.queue import WorkQueue
from pileus.simulation.setup import SECRET

Patch = tuple[object, str, object]
"""Where, which name, and what stands there instead."""


@dataclass(frozen=True)
class Defect:
    name: str
    plant: Callable[[], Iterable[Patch]]
    caught_by: tuple[str, ...]
    """The invariants of which one must not hold."""
    within: int = 10
    """Seeds, from the first on, of which one must find it."""
    scenario: str = "mixed"
    first: int = 1
    """The first of them; of what only a rare course of events shows, one that shows it."""


@contextmanager
def planted(defect: Defect) -> Generator[None]:
    patches = list(defect.plant())
    sound = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, instead in patches:
        setattr(owner, name, instead)
    try:
        yield
    finally:
        for owner, name, before in sound:
            setattr(owner, name, before)


def _no_fence() -> Iterable[Patch]:
    yield LeaseFence, "check", lambda self: None


def _impatient() -> Iterable[Patch]:
    yield Observed, "is_free", lambda self, identity, now: True


def _one_permission() -> Iterable[Patch]:
    yield capabilities, "check_permission", lambda: None
    yield ssh_keys, "check_permission", lambda: None


def _by_name() -> Iterable[Patch]:
    sound = capabilities.machine_of

    def machine_of(node: Any, machines: Any) -> Any:
        named = (one for one in machines if not node.provider_id and one.name == node.name)
        return sound(node, machines) or next(named, None)

    yield capabilities, "machine_of", machine_of


def _deaf_queue() -> Iterable[Patch]:
    sound, calls = WorkQueue[Any].add, [0]

    def add(self: WorkQueue[Any], *args: Any) -> None:
        calls[0] += 1
        if calls[0] % 4:
            sound(self, *args)

    yield WorkQueue, "add", add


def _no_retries() -> Iterable[Patch]:
    yield Controller, "_retry", lambda self, key, error: None


def _no_deletions_after_a_list() -> Iterable[Patch]:
    sound = informer.difference

    def difference(*args: Any, **options: Any) -> list[Change[Any]]:
        return [one for one in sound(*args, **options) if not isinstance(one, Deleted)]

    yield informer, "difference", difference


def _no_finalizer() -> Iterable[Patch]:
    yield serving, "needs_claim", lambda service, mode, at_stake: False


def _released_unseen() -> Iterable[Patch]:
    async def clear(*_: object) -> None:
        return None

    yield Withdrawing, "_clear", clear


def _no_mark() -> Iterable[Patch]:
    sound = provider_plan.desired

    def desired(*args: Any) -> Any:
        return changed(sound(*args), mark=Mark())

    yield provider_plan, "desired", desired


def _one_look() -> Iterable[Patch]:
    """One answer is enough to delete a node."""

    def suspected(self: Guard, known: object, report: Any, began: float, ended: float) -> Suspect:
        return Suspect(report.subject, ended, report.counts, is_confirmed=True)

    yield Guard, "_suspected", suspected


def _no_breaker() -> Iterable[Patch]:
    yield Share, "is_too_large", property(lambda self: False)


def _all_nodes_are_ours() -> Iterable[Patch]:
    yield lifecycle, "ownership", lambda node, scheme, owns: Ownership.OURS


def _mixed_clusters() -> Iterable[Patch]:
    """Whose a balancer is, is told by the Service's UID alone; two clusters may have the same."""
    sound = provider._identified

    def identified(wishes: Any, page: Any) -> Any:
        ours = {wish.owner.uid: wish.owner.cluster for wish in wishes}
        items = tuple(
            changed(one, mark=changed(one.mark, cluster=ours.get(one.mark.owner, "")))
            for one in page.items
        )
        return sound(wishes, changed(page, items=items))

    yield provider, "_identified", identified


def _the_same_block() -> Iterable[Patch]:
    yield Blocks, "find", lambda self: Found(self._at(0), 1)


def _a_made_up_address() -> Iterable[Patch]:
    given = (LoadBalancerIngress(ip="192.0.2.1"),)
    yield service_plan, "ingress_of", lambda balancer: given


def _always_writing() -> Iterable[Patch]:
    yield service_plan, "is_same_ingress", lambda *_: False


def _unnoted_class() -> Iterable[Patch]:
    yield service_plan, "served_as", lambda *_: None


def _forgotten_release() -> Iterable[Patch]:
    yield from _unnoted_class()
    yield Notes, "recall", lambda self, uid, note: None


def _mute() -> Iterable[Patch]:
    async def condition(*_: object) -> None:
        return None

    yield Teller, "failure", condition
    yield Teller, "condition", condition


def _loose_talk() -> Iterable[Patch]:
    sound = EventRecorder.record

    def record(self: EventRecorder, about: Any, kind: str, reason: str, message: str) -> None:
        sound(self, about, kind, reason, f"{message} ({SECRET})")

    yield EventRecorder, "record", record


LEADERS = ("only_the_leader_writes",)
DEFECTS = (
    Defect("the lease is not looked at before a write", _no_fence, LEADERS, 20, "leaders"),
    Defect("a call of many requests asks only once", _one_permission, LEADERS, 20, "keys"),
    Defect(
        "a machine is known by its name, whatever its UUID",
        _by_name,
        ("nodes_of_no_machine_are_gone", "nodes_are_as_their_machines"),
        30,
        "nodes",
    ),
    Defect("a lease is taken though its holder lives", _impatient, LEADERS, scenario="leaders"),
    Defect(
        "every fourth wake-up is lost",
        _deaf_queue,
        ("nodes_are_as_their_machines", "services_have_what_they_want", "nodes_have_ranges"),
    ),
    Defect(
        "what fails is not tried again",
        _no_retries,
        ("nodes_are_as_their_machines", "services_have_what_they_want"),
        20,
    ),
    Defect(
        "what is missing from a new list is not taken to be gone",
        _no_deletions_after_a_list,
        ("services_have_what_they_want", "no_balancer_is_left_behind"),
        25,
        "watches",
    ),
    Defect(
        "a balancer is made before the finalizer",
        _no_finalizer,
        ("the_finalizer_comes_before_the_balancer",),
    ),
    Defect(
        "a Service is released without a look at the cloud",
        _released_unseen,
        ("the_finalizer_goes_when_nothing_is_left",),
    ),
    Defect(
        "a balancer is made without a mark",
        _no_mark,
        ("the_finalizer_comes_before_the_balancer",),
    ),
    Defect(
        "one look is enough to delete a node",
        _one_look,
        (
            "no_node_is_deleted_whose_machine_exists",
            "no_node_is_deleted_within_the_grace",
        ),
        25,
        "nodes",
    ),
    Defect(
        "any number of nodes is deleted at once",
        _no_breaker,
        ("few_nodes_are_deleted_at_once",),
        scenario="nodes",
    ),
    Defect(
        "nodes of other clouds are taken for ours",
        _all_nodes_are_ours,
        ("no_node_is_deleted_whose_machine_exists",),
        scenario="nodes",
    ),
    Defect(
        "another cluster's balancers are taken for ours",
        _mixed_clusters,
        ("others_things_are_left_alone",),
        40,
        "cloud",
    ),
    Defect("a pod range is given twice", _the_same_block, ("no_range_is_given_twice",)),
    Defect(
        "an address is published that nobody gave",
        _a_made_up_address,
        ("only_true_addresses_are_published", "no_address_serves_two"),
    ),
    Defect(
        "the class under which a Service is served is not noted",
        _unnoted_class,
        ("services_keep_nothing_else",),
        10,
        "services",
        first=40,
    ),
    Defect(
        "nor is a release that failed remembered",
        _forgotten_release,
        ("services_keep_nothing_else",),
        10,
        "services",
        first=20,
    ),
    Defect("a failure is not told", _mute, ("what_cannot_be_done_is_told",), 10, "services"),
    Defect("an event tells a secret", _loose_talk, ("secrets_stay_secret",)),
    Defect(
        "an equal status is written again",
        _always_writing,
        ("a_quiet_world_is_left_alone", "writes_are_bounded"),
    ),
)
