"""What is so in the modelled OpenStack, and which of its requests count as one repeated."""

from dataclasses import replace
from random import Random
from typing import Any

from pileus.cloud.balancer import Owner
from pileus.providers.openstack.api import Call, Service
from pileus.providers.openstack.marks import tags_of
from pileus_lab.simulation.clouds import deeds
from pileus_lab.simulation.clouds.interface import Moment
from pileus_lab.simulation.clouds.openstack import SimulatedOpenStack
from pileus_lab.simulation.clouds.openstack_truth import TruthOf
from pileus_lab.simulation.clouds.truth import Balancer

NOW = 1000.0
OWNER = Owner("cluster-1", "uid-1")
BALANCERS = "/v2.0/lbaas/loadbalancers"
PORT = Call(
    service=Service.NETWORK,
    method="PUT",
    path="/v2.0/ports/p-1",
    body={"port": {"security_groups": ["g-1"]}},
    if_revision=4,
)


def create(name: str) -> Call:
    return Call(
        service=Service.LOAD_BALANCER,
        method="POST",
        path=BALANCERS,
        body={"loadbalancer": {"name": name}},
    )


def what(call: Call) -> str:
    return SimulatedOpenStack(Random(1)).asked(call).what


def routes(path: str) -> Call:
    body = {"router": {"routes": [{"destination": "10.244.1.0/24", "nexthop": "10.0.0.9"}]}}
    return Call(service=Service.NETWORK, method="PUT", path=path, body=body)


def test_creations_for_two_services_are_not_one_that_is_repeated() -> None:
    assert what(create("web-1")) == what(create("web-1")) != what(create("web-2"))


def test_a_write_with_another_revision_is_the_same_write_again() -> None:
    assert what(PORT) == what(replace(PORT, if_revision=5))


def test_a_request_for_some_routes_names_them_and_one_for_all_names_none() -> None:
    assert "'10.244.1.0/24'" in what(routes("/v2.0/routers/r-1/add_extraroutes"))
    every = what(routes("/v2.0/routers/r-1"))
    assert "'10.244.1.0/24'" not in every
    assert "10.244.1.0/24 via 10.0.0.9" in every


class Scene:
    """A cloud in which load balancers with the same mark are created."""

    def __init__(self) -> None:
        self.cloud = SimulatedOpenStack(Random(1))
        self.state = self.cloud.start()
        self.now = NOW

    def create(self) -> str:
        self.now += 60
        body = {"vip_subnet_id": self.cloud._site.subnet, "tags": list(tags_of(OWNER))}
        call = replace(create("web"), body={"loadbalancer": body})
        made: Any
        self.state, made = self.cloud.step(self.state, call, Moment(self.now, Random(self.now)))
        return made["loadbalancer"]["id"]

    def delete(self, balancer: str) -> None:
        self.now += 60
        deed = self.cloud.operation(self.state, deeds.DeleteBalancer(balancer))
        assert deed
        self.state, _ = self.cloud.step(self.state, deed, Moment(self.now, Random(1)))

    def balancer(self, identity: str) -> Balancer:
        """Once all changes are complete."""
        self.now += 60
        read = Call(service=Service.LOAD_BALANCER, method="GET", path=BALANCERS)
        self.state, _ = self.cloud.step(self.state, read, Moment(self.now, Random(1)))
        return self.cloud.truth(self.state, self.now).balancers[identity]


def test_a_second_load_balancer_with_the_same_mark_is_a_twin_until_the_first_is_gone() -> None:
    scene = Scene()
    first, second = scene.create(), scene.create()
    assert (scene.balancer(first).owner, scene.balancer(first).twin_of) == (OWNER, None)
    twin = scene.balancer(second)
    assert (twin.owner == OWNER, twin.twin_of) == (False, OWNER)
    scene.delete(first)
    assert (scene.balancer(second).owner, scene.balancer(second).twin_of) == (OWNER, None)


def test_contents_are_the_same_as_computed_from_nothing() -> None:
    """They are put together from what earlier states had."""
    scene = Scene()
    for one in (scene.create(), scene.create()):
        scene.balancer(one)
        scene.delete(one)
        for seconds in (0.0, 60.0):
            now = scene.now + seconds
            computed = TruthOf(scene.cloud._config).at(scene.state, now)
            assert scene.cloud.truth(scene.state, now) == computed


def test_contents_that_have_not_changed_are_not_computed_again() -> None:
    """Most time of a simulation went into that: a change that was due was made at every look."""
    scene = Scene()
    scene.create()
    done, later = (scene.cloud.truth(scene.state, scene.now + seconds) for seconds in (60.0, 70.0))
    assert done.balancers
    assert later.balancers is done.balancers


def test_every_free_floating_ip_is_left() -> None:
    """Only the last one was shown: the others were leaks that no seed could find."""
    clouds = (SimulatedOpenStack(Random(seed)) for seed in range(50))
    cloud = next(one for one in clouds if one._site.public)
    state = cloud.start()
    for number in (1, 2):
        fields = {"floating_network_id": cloud._site.public, "description": f"number {number}"}
        call = replace(PORT, method="POST", path="/v2.0/floatingips", if_revision=None)
        call = replace(call, body={"floatingip": fields})
        state, _ = cloud.step(state, call, Moment(NOW, Random(number)))

    left = cloud.truth(state, NOW).balancers.values()

    assert all(one.is_remains for one in left)
    assert sum("floating_ip_address" in str(one.record) for one in left) == 2
