"""Defects that remove one guard on one path; the mechanism as a whole is left in place."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from msgspec.structs import replace as changed

from pileus.cloud.balancer import Effect
from pileus.controllers.ipam.allocator import Blocks
from pileus.controllers.lifecycle import plan as lifecycle_plan
from pileus.controllers.lifecycle.reconciler import StepPerformer
from pileus.controllers.node import addresses
from pileus.controllers.node import plan as node_plan
from pileus.controllers.route import plan as route_plan
from pileus.controllers.service import orphans
from pileus.controllers.service import plan as service_plan
from pileus.controllers.service.annotations import Mode
from pileus.controllers.service.notes import DeletedServices, Notes
from pileus.controllers.service.observation import Observation
from pileus.controllers.service.reconciler import ServiceReconciler
from pileus_lab.local import balancer_plan as provider_plan
from pileus_lab.simulation.managers import PacedClock
from tests.simulation.planting import Patch


def every_edit_recreates_the_balancer() -> Iterable[Patch]:
    """A balancer that is not as it should be is deleted, and created again in the next round."""
    sound = provider_plan.changes

    def changes(wish: Any, seen: Any) -> Any:
        made = sound(wish, seen)
        if seen.found is None or all(one.effect is Effect.DELETE for one in made):
            return made
        return (provider_plan._delete(seen.found),)

    yield provider_plan, "changes", changes


def a_vanished_service_is_not_asked_for() -> Iterable[Patch]:
    """What a watch does not show is gone: the API server itself is not asked."""

    async def confirmed(self: ServiceReconciler, seen: Observation) -> Observation:
        del self
        return replace(seen, deleted=seen.deleted and replace(seen.deleted, is_confirmed=True))

    yield ServiceReconciler, "_confirm_deletion", confirmed


def routes_are_renewed() -> Iterable[Patch]:
    """Of five plans, two in a row delete all routes; the next round creates them again.

    Two, because a plan that deletes a route is made again after a list of the nodes.
    """
    sound, plans = route_plan._Routing.unwanted, count()

    def unwanted(self: Any) -> Any:
        yield from sound(self)
        if next(plans) % 5 >= 3:
            yield from self._kept

    yield route_plan._Routing, "unwanted", unwanted


def the_taint_goes_without_labels() -> Iterable[Patch]:
    sound = node_plan.initial_object

    def initial_object(node: Any, facts: Any) -> Any:
        write = sound(node, facts)
        return write and replace(write, labels={})

    yield node_plan, "initial_object", initial_object


def addresses_in_the_order_of_the_cloud() -> Iterable[Patch]:
    yield addresses, "_steady", lambda wanted, present: tuple(wanted)


def vetoes_are_not_read() -> Iterable[Patch]:
    yield lifecycle_plan, "_kept_by_annotation", lambda node, absent: None


def vetoes_are_read_once() -> Iterable[Patch]:
    """The newest state of a node is judged before it is deleted, but for its annotations."""
    sound = StepPerformer._is_condemned

    def is_condemned(self: StepPerformer, seen: Any, fresh: Any) -> bool:
        metadata = changed(fresh.metadata, annotations=seen.node.metadata.annotations)
        return sound(self, seen, changed(fresh, metadata=metadata))

    yield StepPerformer, "_is_condemned", is_condemned


def readiness_is_read_once() -> Iterable[Patch]:
    """The newest state of a node is judged before it is deleted, but for its status."""
    sound = StepPerformer._is_condemned

    def is_condemned(self: StepPerformer, seen: Any, fresh: Any) -> bool:
        return sound(self, seen, changed(fresh, status=seen.node.status))

    yield StepPerformer, "_is_condemned", is_condemned


def every_service_is_managed() -> Iterable[Patch]:
    """What `pileus.dev/manage` says is not looked at."""
    yield service_plan, "mode_of", lambda service: Mode.FULL


def any_number_of_services_may_vanish() -> Iterable[Patch]:
    yield DeletedServices, "too_many", lambda self, served, now, existing=frozenset(): 0


def any_number_of_orphans_is_deleted() -> Iterable[Patch]:
    def deletable(since: Any, _: int, now: float, existing: Any = ()) -> tuple[str, ...]:
        old = (uid for uid in since if now - since[uid] >= orphans.GRACE)
        return tuple(uid for uid in old if uid not in existing)

    yield orphans, "deletable", deletable
    yield orphans, "are_too_many", lambda orphans, owners: False


def vanished_services_are_left_to_the_sweeper() -> Iterable[Patch]:
    """Who saw a Service vanish does nothing: sooner or later its balancer is found as an orphan."""
    yield DeletedServices, "add", lambda self, service, now: None


def one_bad_range_spoils_the_others() -> Iterable[Patch]:
    sound = route_plan._Routing._report

    def report(self: Any, node: Any, made: Any) -> Any:
        found = sound(self, node, made)
        return replace(found, create=()) if found.problems else found

    yield route_plan._Routing, "_report", report


def ranges_are_never_given_back() -> Iterable[Patch]:
    yield Blocks, "release", lambda self, held, holder: None


def the_lease_sleeps_with_the_machine() -> Iterable[Patch]:
    """The clock of the lease does not count the seconds for which the machine was suspended."""
    yield PacedClock, "__call__", lambda self: asyncio.get_running_loop().time()


def released_services_are_remembered() -> Iterable[Patch]:
    """What is remembered of a Service stays when the Service is gone."""
    yield Notes, "forget", lambda self, uid: None


def a_round_that_stumbles() -> Iterable[Patch]:
    """The search for orphans has a bug, which is caught where rounds are isolated."""

    def unwanted(*_: object) -> frozenset[str]:
        raise ValueError("a bug")

    yield orphans, "unwanted", unwanted
