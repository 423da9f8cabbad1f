"""The OpenStack provider under faults, on the model of OpenStack, and a planted defect of it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pileus.cloud.balancer import Effect
from pileus.controllers.service.events import Reporter
from pileus.providers.openstack import (
    balancer_observation,
    balancer_plan,
    floating_ip,
    networks,
    port_plan,
)
from pileus.providers.openstack.balancer_seen import Seen
from pileus.providers.openstack.balancer_steps import Change, DeleteBalancer, DeletePart
from pileus.providers.openstack.desired import Desired, Setup
from pileus.providers.openstack.floating_ip import FloatingIps, FloatingIpSpec
from pileus.providers.openstack.neutron import FloatingIp, Neutron, Port
from pileus.providers.openstack.nova import Nova, Server
from pileus.providers.openstack.octavia import LoadBalancer
from pileus.providers.openstack.port_writes import Fields, PortWrites
from pileus_lab.simulation.clouds.interface import SimulatedCloud
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.clouds.openstack import SimulatedOpenStack
from pileus_lab.simulation.play import play
from pileus_lab.simulation.scenario import SCENARIOS, second_edition
from pileus_lab.simulation.schedule import draw
from pileus_lab.simulation.trial import assert_everything_holds

BLOCK = 4
MEMBERS_WITHOUT_ADDRESS = 39
"""The seed that found it: all nodes registered again at once, and a load balancer lost all members
because nodes have no addresses until they are initialized."""
REPLACED_BEFORE_INITIALIZED = 172
"""A machine was replaced before its node was initialized, and the node got the ID of the new one,
which had its name."""
FAILED_WITH_A_GROUP = 196
"""The judge took a failed load balancer that was deleted for one that lost its members, because its
security group was left."""
ONLY_NEW_NODES = 249
"""All nodes but a new one were excluded, and a load balancer lost all members before that one had
an address."""
ADDRESS_WITHOUT_NETWORK = 231
"""A cloud without an external network ignored `spec.loadBalancerIP`."""
DELETED_TWINS = 371
"""The judge took the deletion of second load balancers for clean-ups after vanished Services."""
SLOW_STEPS = 773
"""The pauses between the changes of one Service grew, although the cloud accepted each of them."""
PART_DELETED = 859
"""The deletion of a pool was accepted, and an empty list after it was taken for the end."""
GROUP_LEFT = 956
"""A security group that could not be deleted was forgotten after an empty list."""
NO_NODES = 655
"""No node was left to tell the subnet of a load balancer that had to be created again."""
STALE_MEMBER = 1176
"""A node that left was a member forever, because the only node that joined never got an address."""
STOPPED_MACHINE = 1922
"""The route to a deleted node stayed, because its machine still existed, and blocked the next
node with its pod range."""
ADDRESSES_CHANGED = 266
"""Someone changed the addresses of a node after they were written and before its taint was
removed."""
CLOCK_BEHIND = 1569
"""The clock of the manager was behind, and a node seemed to be new for an hour: its missing route
was not reported."""
GROUP_HIDDEN = 1950
"""After the deletion of a load balancer was accepted, its security group was forgotten because of
one empty list."""
FAILED_OVER = 682
"""A load balancer counted as up to date because nothing could be changed while it was in ERROR: a
member kept its old address after the failover."""
FOUND = [
    MEMBERS_WITHOUT_ADDRESS,
    REPLACED_BEFORE_INITIALIZED,
    FAILED_WITH_A_GROUP,
    ONLY_NEW_NODES,
    ADDRESS_WITHOUT_NETWORK,
    DELETED_TWINS,
    SLOW_STEPS,
    PART_DELETED,
    GROUP_LEFT,
    NO_NODES,
    STALE_MEMBER,
    STOPPED_MACHINE,
    ADDRESSES_CHANGED,
    CLOCK_BEHIND,
    GROUP_HIDDEN,
    FAILED_OVER,
]
SAME_PORTS = 100
"""Services that were created at once gave their security groups to the same ports, and refused each
other all but one change."""
CREATED_TWICE = 57
"""An old list does not show the load balancer that was just created."""
OLD_ROUTER = 197
"""Routes are refused one after another by a Neutron that takes them only all together."""
DECLARED_READS = 624
"""Machines of few nodes are asked for one by one, as the provider declares."""
LAST_MEMBER = 1237
"""A balancer without members shows no node ports: that is no change of its ports."""
UNCHANGED = 1451
"""A balancer that is shown again as it was has not changed."""
AT_THE_SAME_MOMENT = 1663
"""A request was sent at the very moment at which the cloud asked to wait."""
MADE_UP = 1683
"""The only node has no machine, and an address that operators made up: the Service reports that no
subnet is known."""
SAME_ADDRESS = 1085
"""Users gave two nodes the same address: a pool has it once."""
FAILED_LATER = 606
"""A change of members failed: nothing but a failover by an administrator helps then."""
DELETED_AGAIN = 9110
"""The deletion of one load balancer failed in the cloud six times: that is one Service."""
SAME_PORT_REFUSED = 458
"""A fault refuses all changes of a port: several Services try again, each at its own pace."""
SAME_PORT_GONE = 1066
"""A port was deleted before several Services changed it."""
LEFT_TO_OTHERS = 13
"""In scenario strangers: a load balancer that was left to another cluster was taken for one whose
owner is unknown, and the finalizer stayed."""
ANOTHER_MISTAKE = 223
"""In scenario strangers: a user corrected an annotation, and for five minutes the condition went on
reporting it instead of the mistake that was left."""
CONFIRMED_BY_ID = 127
"""In scenario two-clouds: while lists are empty, each part that is known is looked up by its ID."""
NODE_DELETED_UNSEEN = 319
"""In scenario dual-stack: a node was deleted before its manager started again, and nothing says
that the route to its machine is this cluster's."""
SENT_DURING_A_PAUSE = 3044
"""In scenario dual-stack: Neutron refused all routes, asked to wait when half of them were sent,
and got the other half at once."""
NETWORKS_READ = 3005
"""In scenario strangers: the networks were read for a load balancer with five pools, and that was
more than the provider declared."""
FREE_FLOATING_IPS = 7
"""In scenario lies: of two floating IPs that are attached to nothing, the judge saw one only."""
SHARING = range(1, 5)
"""In scenario sharing: Services leave load balancers in every order."""
MANY_REFUSED = 24
"""In scenario services: the answers to all creations of a fleet of Services are lost."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(1, 13, BLOCK))
def test_everything_holds(first: int) -> None:
    assert_everything_holds(SimulatedOpenStack, seeds=range(first, first + BLOCK))


@pytest.mark.timeout(300)
def test_seeds_that_once_found_something() -> None:
    assert_everything_holds(SimulatedOpenStack, seeds=[*FOUND, SAME_PORTS])


@pytest.mark.timeout(300)
def test_nothing_is_sent_while_the_cloud_asked_to_wait() -> None:
    assert_everything_holds(SimulatedOpenStack, seeds=[SENT_DURING_A_PAUSE], scenario="dual-stack")


@pytest.mark.timeout(300)
def test_seeds_that_were_once_misjudged() -> None:
    assert_everything_holds(
        SimulatedOpenStack, seeds=[CREATED_TWICE, OLD_ROUTER, FAILED_LATER, DELETED_AGAIN]
    )
    assert_everything_holds(SimulatedOpenStack, seeds=[DECLARED_READS, LAST_MEMBER, SAME_ADDRESS])
    assert_everything_holds(SimulatedOpenStack, seeds=[UNCHANGED, AT_THE_SAME_MOMENT, MADE_UP])
    assert_everything_holds(SimulatedOpenStack, seeds=[SAME_PORT_REFUSED, SAME_PORT_GONE])
    assert_everything_holds(SimulatedOpenStack, seeds=[MANY_REFUSED], scenario="services")
    assert_everything_holds(SimulatedOpenStack, seeds=[FREE_FLOATING_IPS], scenario="lies")
    assert_everything_holds(SimulatedOpenStack, seeds=[CONFIRMED_BY_ID], scenario="two-clouds")
    assert_everything_holds(SimulatedOpenStack, seeds=[NODE_DELETED_UNSEEN], scenario="dual-stack")


@pytest.mark.timeout(300)
def test_a_seed_gives_the_same_run_in_every_process() -> None:
    program = "from pileus_lab.simulation.campaign import played;"
    program += f"print(played('mixed', 'openstack', {MEMBERS_WITHOUT_ADDRESS}).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": str(number), "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for number in (1, 2)
    }
    assert len(digests) == 1


@pytest.mark.timeout(300)
def test_more_reads_than_the_provider_declares_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Nova.server

    async def thrice(nova: Nova, server_id: str) -> Server:
        await asked(nova, server_id)
        await asked(nova, server_id)
        return await asked(nova, server_id)

    monkeypatch.setattr(Nova, "server", thrice)
    with pytest.raises(AssertionError, match="a_quiet_world_is_left_alone"):
        assert_everything_holds(SimulatedOpenStack, seeds=[DECLARED_READS])


@pytest.mark.timeout(300)
def test_a_service_that_waits_for_a_subnet_without_need_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(networks, "_on_router", none)
    with pytest.raises(AssertionError, match="services_have_what_they_want"):
        assert_everything_holds(SimulatedOpenStack, seeds=[NO_NODES])


@pytest.mark.timeout(300)
def test_a_service_that_waits_for_a_subnet_and_does_not_report_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(*_: object, **__: object) -> None:
        return

    monkeypatch.setattr(Reporter, "failure", silent)
    with pytest.raises(AssertionError, match="services_have_what_they_want"):
        assert_everything_holds(SimulatedOpenStack, seeds=[MADE_UP])


@pytest.mark.timeout(300)
def test_services_that_refuse_each_other_changes_of_ports_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def as_observed(writes: PortWrites, neutron: Neutron, port: Port, fields: Fields) -> Port:
        return await writes._write(neutron, port, fields)

    monkeypatch.setattr(PortWrites, "change", as_observed)
    with pytest.raises(AssertionError, match="what_fails_comes_ever_more_seldom"):
        assert_everything_holds(SimulatedOpenStack, seeds=[SAME_PORTS])


@pytest.mark.timeout(300)
def test_a_wanted_balancer_that_is_deleted_is_found_although_its_floating_ip_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = balancer_plan._ports

    def again(desired: Desired, seen: Seen, setup: Setup) -> Iterator[Change]:
        changes = tuple(sound(desired, seen, setup))
        if changes and seen.found is not None:
            yield Change(Effect.REPLACE, "created again", DeleteBalancer(seen.found.id))

    monkeypatch.setattr(balancer_plan, "_ports", again)
    with pytest.raises(AssertionError, match="nothing_wanted_is_deleted"):
        assert_everything_holds(SimulatedOpenStack, seeds=[GROUP_LEFT])


@pytest.mark.timeout(300)
def test_members_that_are_dropped_without_an_address_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: object) -> Iterator[object]:
        return iter(())

    def never(*_: object) -> bool:
        return False

    monkeypatch.setattr(port_plan, "_kept", none)
    monkeypatch.setattr(port_plan, "_has_to_wait", never)
    with pytest.raises(AssertionError, match="members_are_never_emptied"):
        assert_everything_holds(SimulatedOpenStack, seeds=[MEMBERS_WITHOUT_ADDRESS])


@pytest.mark.timeout(300)
def test_members_that_leave_before_a_new_one_has_an_address_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> bool:
        return False

    monkeypatch.setattr(port_plan, "_has_to_wait", never)
    with pytest.raises(AssertionError, match="members_are_never_emptied"):
        assert_everything_holds(SimulatedOpenStack, seeds=[ONLY_NEW_NODES])


@pytest.mark.timeout(300)
def test_a_node_that_gets_the_successor_of_its_machine_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*_: object) -> bool:
        return False

    monkeypatch.setattr(Nova, "has_known", never)
    with pytest.raises(AssertionError, match="nodes_get_the_id_of_their_own_machine"):
        assert_everything_holds(SimulatedOpenStack, seeds=[REPLACED_BEFORE_INITIALIZED])


@pytest.mark.timeout(300)
def test_strangers_on_our_load_balancers_are_left_alone() -> None:
    assert_everything_holds(SimulatedOpenStack, seeds=range(1, 5), scenario="strangers")

    for seed in (LEFT_TO_OTHERS, ANOTHER_MISTAKE, NETWORKS_READ):
        schedule = draw(seed, second_edition(SCENARIOS["strangers"]))
        violation = play(schedule, SimulatedOpenStack).violation
        assert violation is None, str(violation)


@pytest.mark.timeout(300)
def test_a_load_balancer_that_is_deleted_with_parts_of_others_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(balancer_plan, "is_deleted_whole", always)
    with pytest.raises(AssertionError, match="others_things_are_left_alone"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 30), scenario="strangers")


@pytest.mark.timeout(300)
def test_pools_of_others_that_are_deleted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unused(plan: port_plan.PortPlan) -> Iterator[Change]:
        for pool in plan.parts.pools:
            if not pool.listeners:
                yield Change(Effect.DELETE, "unused pool", DeletePart("pool", pool.id))

    monkeypatch.setattr(port_plan.PortPlan, "_unused_pools", unused)
    with pytest.raises(AssertionError, match="others_things_are_left_alone"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 30), scenario="strangers")


@pytest.mark.timeout(300)
def test_an_address_of_others_that_is_taken_for_the_service_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(floating_ip, "_is_provable", always)
    with pytest.raises(AssertionError, match="others_things_are_left_alone"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 5), scenario="strangers")


@pytest.mark.timeout(300)
def test_a_load_balancer_of_others_that_is_deleted_as_a_second_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def all_but_the_first(ours: Sequence[LoadBalancer]) -> tuple[LoadBalancer, ...]:
        return tuple(ours[1:])

    monkeypatch.setattr(balancer_observation, "twins_of", all_but_the_first)
    with pytest.raises(AssertionError, match="others_things_are_left_alone"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 5), scenario="strangers")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cloud", [SimulatedOpenStack, SimulatedLocal])
def test_users_reach_no_load_balancer_of_others(cloud: type[SimulatedCloud[Any, Any]]) -> None:
    assert_everything_holds(cloud, seeds=range(1, 5), scenario="tenants")


@pytest.mark.timeout(300)
def test_a_load_balancer_of_others_that_anyone_may_use_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(balancer_observation, "may_be_guest", always)
    with pytest.raises(AssertionError, match="no_address_serves_two|Service spy-"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 5), scenario="tenants")


@pytest.mark.timeout(300)
def test_a_free_floating_ip_of_others_that_anyone_may_have_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_free(_: FloatingIpSpec, named: FloatingIp | None) -> bool:
        return named is not None and not named.port_id

    monkeypatch.setattr(floating_ip, "_is_available", is_free)
    with pytest.raises(AssertionError, match="others_things_are_left_alone"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 5), scenario="tenants")


@pytest.mark.timeout(300)
def test_a_refusal_that_says_whose_a_load_balancer_is_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(_: object, named: LoadBalancer, **__: bool) -> str:
        return f"annotation pileus.dev/adopt: it has address {named.vip_address}"

    monkeypatch.setattr(balancer_observation, "_refused", refused)
    with pytest.raises(AssertionError, match="which belongs to others"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 30), scenario="tenants")


@pytest.mark.timeout(300)
def test_an_address_of_others_that_anyone_gets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(floating_ip, "_is_available", always)
    with pytest.raises(AssertionError, match="Service spy-|no_address_serves_two|others_things"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 9), scenario="tenants")


@pytest.mark.timeout(300)
def test_a_refusal_that_says_who_has_an_address_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = floating_ip.FloatingIps.of

    def of(self: FloatingIps, spec: FloatingIpSpec, port_id: str) -> FloatingIps:
        used = " ".join(one.floating_ip_address for one in self.found)
        monkeypatch.setattr(floating_ip, "_not_available", lambda *_: f"in use: {used}")
        return real(self, spec, port_id)

    monkeypatch.setattr(floating_ip.FloatingIps, "of", of)
    with pytest.raises(AssertionError, match="which belongs to others"):
        assert_everything_holds(SimulatedOpenStack, seeds=range(1, 9), scenario="tenants")


@pytest.mark.timeout(300)
def test_services_of_one_namespace_share_a_load_balancer() -> None:
    assert_everything_holds(SimulatedOpenStack, seeds=SHARING, scenario="sharing")


@pytest.mark.timeout(300)
def test_a_floating_ip_that_is_left_by_the_first_of_two_services_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It loses its mark with the first, and nothing says that the second one has it."""

    def none(*_: object) -> None:
        return None

    def unknown(_: object) -> str:
        return ""

    monkeypatch.setattr(balancer_plan, "_heir", none)
    monkeypatch.setattr(balancer_plan, "_description_at_creation", unknown)
    with pytest.raises(AssertionError, match="was created without a mark|nothing says whose it is"):
        assert_everything_holds(SimulatedOpenStack, seeds=SHARING, scenario="sharing")


@pytest.mark.timeout(300)
def test_a_load_balancer_that_is_deleted_with_the_first_of_two_services_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(balancer_plan, "is_deleted_whole", always)
    with pytest.raises(AssertionError, match="nothing_wanted_is_deleted"):
        assert_everything_holds(SimulatedOpenStack, seeds=SHARING, scenario="sharing")
