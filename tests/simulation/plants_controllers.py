"""Defects of controllers and of the local cloud's provider."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from typing import Any

from msgspec.structs import replace as changed

from pileus.cloud.model import NodeRef
from pileus.controllers.ipam import reconciler as ipam
from pileus.controllers.ipam.allocator import Blocks, Found
from pileus.controllers.lifecycle import plan as lifecycle_plan
from pileus.controllers.lifecycle import reconciler as lifecycle
from pileus.controllers.lifecycle.guard import Guard, Share, Suspect
from pileus.controllers.node import patches as node_patches
from pileus.controllers.route import plan as route_plan
from pileus.controllers.route import status as route_status
from pileus.controllers.service import plan as service_plan
from pileus.controllers.service import status as service_status
from pileus.controllers.service.annotations import Classes, MemberScope
from pileus.controllers.service.events import Reporter
from pileus.controllers.service.members import MemberRules, Membership
from pileus.controllers.service.notes import Notes
from pileus.controllers.service.observation import BalancerOperations
from pileus.controllers.ssh_keys import plan as plan_of_keys
from pileus.kube.model.core_v1 import LoadBalancerIngress
from pileus.objects import ownership as node_ownership
from pileus.objects.ownership import Ownership
from pileus_lab.local import api as provider_api
from pileus_lab.local import balancer_plan as provider_plan
from pileus_lab.local import capabilities
from pileus_lab.local import capabilities as provider
from pileus_lab.local.model import balancers as model
from pileus_lab.local.model.records import Mark, Member
from tests.simulation.planting import Patch


def no_finalizer() -> Iterable[Patch]:
    yield service_plan, "needs_finalizer", lambda service, mode, at_stake: False


def released_unseen() -> Iterable[Patch]:
    yield service_plan, "_last_check", lambda *_: None


def no_mark() -> Iterable[Patch]:
    sound = provider_plan.desired

    def desired(*args: Any) -> Any:
        return changed(sound(*args), mark=Mark())

    yield provider_plan, "desired", desired


def one_family() -> Iterable[Patch]:
    sound = provider_plan.desired

    def desired(*args: Any) -> Any:
        return changed(sound(*args), families=("IPv4",))

    yield provider_plan, "desired", desired


def nameless_machines() -> Iterable[Patch]:
    yield provider_plan, "_member", lambda node: Member(name=node.name)


def one_look() -> Iterable[Patch]:
    """One answer is enough to delete a node."""

    def suspected(self: Guard, known: object, report: Any, began: float, ended: float) -> Suspect:
        return Suspect(report.subject, ended, report.counts, is_confirmed=True)

    yield Guard, "_suspected", suspected


def no_breaker() -> Iterable[Patch]:
    yield Share, "is_too_large", property(lambda self: False)


def all_nodes_are_ours() -> Iterable[Patch]:
    yield node_ownership, "ownership", lambda node, scheme, owns: Ownership.OURS


def mixed_clusters() -> Iterable[Patch]:
    """A provider identifies owners by the UID alone, and the manager does not check the cluster.

    Two clusters may have the same UIDs. The check of the manager alone would hide the mistake.
    """
    sound = provider._identified

    def identified(wishes: Any, page: Any) -> Any:
        ours = {wish.owner.uid: wish.owner.cluster for wish in wishes}
        items = tuple(
            changed(one, mark=changed(one.mark, cluster=ours.get(one.mark.owner, "")))
            for one in page.items
        )
        return sound(wishes, changed(page, items=items))

    yield provider, "_identified", identified
    yield BalancerOperations, "_check_owner", lambda self, desired, found: None


def the_same_block() -> Iterable[Patch]:
    yield Blocks, "find", lambda self: Found(self._at(0), 1)


def a_made_up_address() -> Iterable[Patch]:
    given = (LoadBalancerIngress(ip="192.0.2.1"),)
    yield service_status, "ingress_of", lambda balancer: given


def always_writing() -> Iterable[Patch]:
    yield service_status, "is_same_ingress", lambda *_: False


def unnoted_class() -> Iterable[Patch]:
    yield service_status, "served_as", lambda *_: None


def forgotten_release() -> Iterable[Patch]:
    yield from unnoted_class()
    yield Notes, "restore", lambda self, uid, note: None


def mute() -> Iterable[Patch]:
    async def condition(*_: object) -> None:
        return None

    yield Reporter, "failure", condition
    yield Reporter, "condition", condition


def one_look_is_enough_to_release() -> Iterable[Patch]:
    yield service_plan, "_until_second_check", lambda _: 0.0


def every_class_is_served() -> Iterable[Patch]:
    yield Classes, "_name", lambda self, service: True


def all_taints_go() -> Iterable[Patch]:
    yield node_patches, "taints_of", lambda node: ()


def members_are_lost() -> Iterable[Patch]:
    """At times no node is known; and nobody looks twice."""
    sound, calls = Membership.now, count(1)

    def now(self: Membership, scope: MemberScope) -> frozenset[NodeRef]:
        return frozenset() if next(calls) % 3 == 0 else sound(self, scope)

    yield Membership, "now", now
    yield service_plan, "loses_too_many", lambda balancer, wanted: False


def created_twice() -> Iterable[Patch]:
    """What is not seen is made, and the cloud does not look whether it made it before."""
    sound = model.CreateBalancer.step

    def step(self: Any, state: Any, moment: Any) -> Any:
        made = {key: one for key, one in state.balancers.items() if one.mark == self.mark}
        others = {key: one for key, one in state.balancers.items() if key not in made}
        after, answer = sound(self, replace(state, balancers=others), moment)
        return replace(after, balancers={**made, **after.balancers}), answer

    yield model.CreateBalancer, "step", step


def the_same_address() -> Iterable[Patch]:
    """The cloud gives an address that another balancer has."""
    yield model, "give", lambda pool, start, is_free: "198.51.100.7"
    yield model, "_check_free", lambda state, balancer, address, settings: None


def stale_conditions() -> Iterable[Patch]:
    """A condition that was raised is not taken back."""
    sound = service_status.with_condition

    def with_condition(write: Any, service: Any, verdict: Any, wording: Any) -> Any:
        is_well = verdict.state == "True" and service_status.condition_of(service) is not None
        return write if is_well else sound(write, service, verdict, wording)

    yield service_status, "with_condition", with_condition


def nobody_is_deleted() -> Iterable[Patch]:
    async def delete(*_: object) -> None:
        return None

    yield lifecycle.StepPerformer, "_delete", delete


def stopped_nodes_are_not_marked() -> Iterable[Patch]:
    yield lifecycle, "object_write", lambda node, wanted: None


def routes_stay() -> Iterable[Patch]:
    yield route_plan._Routing, "unwanted", lambda self: ()


def routes_are_not_told() -> Iterable[Patch]:
    yield route_status, "condition", lambda node, available, now: None


def some_get_no_range() -> Iterable[Patch]:
    sound = ipam.needs_ranges
    yield ipam, "needs_ranges", lambda node: sound(node) and not node.metadata.name.endswith("2")


def ports_are_kept() -> Iterable[Patch]:
    """Ports that nobody wants any more stay."""
    sound = provider_plan.changes

    def changes(*args: Any) -> Any:
        return tuple(c for c in sound(*args) if not isinstance(c.step, model.RemovePort))

    yield provider_plan, "changes", changes


def open_to_all() -> Iterable[Patch]:
    """Who may connect is not passed on."""
    sound = provider_plan.desired

    def desired(*args: Any) -> Any:
        wanted = sound(*args)
        return changed(wanted, traffic=changed(wanted.traffic, sources=()))

    yield provider_plan, "desired", desired


def no_conditions() -> Iterable[Patch]:
    """Only an event says why, and nothing on the Service."""

    async def condition(*_: object) -> None:
        return None

    yield Reporter, "condition", condition


def one_permission() -> Iterable[Patch]:
    """The fence is asked before a method alone; and so is the cloud's wish for silence."""
    yield provider_api, "check_permission", lambda: None


def by_name() -> Iterable[Patch]:
    sound = capabilities.machine_of

    def machine_of(node: Any, machines: Any) -> Any:
        named = (one for one in machines if not node.provider_id and one.name == node.name)
        return sound(node, machines) or next(named, None)

    yield capabilities, "machine_of", machine_of


def deleted_against_the_policy() -> Iterable[Patch]:
    yield lifecycle_plan, "_kept_by_policy", lambda absent, policy: None


def keys_are_forgotten() -> Iterable[Patch]:
    yield plan_of_keys, "_additions", lambda seen: ()


def members_of_all_clouds() -> Iterable[Patch]:
    yield MemberRules, "is_foreign", lambda self, node: False
