"""What is so in the local cloud, told in words that fit any cloud."""

from random import Random

from pileus.cloud.balancer import Owner
from pileus.cloud.model import InstanceState
from pileus_lab.local.model.state import State
from pileus_lab.simulation.clouds import deeds
from pileus_lab.simulation.clouds.deeds import CloudDeed
from pileus_lab.simulation.clouds.interface import Moment
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.clouds.truth import Port, Truth

NOW = 1000.0
THEIRS = Owner("other-cluster", "uid-1")


class Scene:
    """A cloud whose machines take three seconds to boot."""

    def __init__(self) -> None:
        clouds = (SimulatedLocal(Random(seed)) for seed in range(20))
        self.cloud = next(one for one in clouds if one._settings.boot_seconds == 3.0)
        self.state: State = self.cloud.start()

    def do(self, deed: CloudDeed) -> None:
        operation = self.cloud.operation(self.state, deed)
        assert operation is not None
        self.state, _ = self.cloud.step(self.state, operation, Moment(NOW, Random(1)))

    def truth(self, now: float = NOW) -> Truth:
        return self.cloud.truth(self.state, now)


def foreign() -> deeds.AddBalancer:
    return deeds.AddBalancer(name="a1", owner=THEIRS, port=80, node_port=30080, member="m-1")


def test_a_machine_comes_up_when_its_time_has_come():
    scene = Scene()
    scene.do(deeds.AddMachine("m-1"))

    states = [scene.truth(NOW + after).machines[0].state for after in (0.0, 2.9, 3.0, 60.0)]

    pending, running = InstanceState.PENDING, InstanceState.RUNNING
    assert states == [pending, pending, running, running]


def test_what_people_do_to_machines_is_seen():
    scene = Scene()
    scene.do(deeds.AddMachine("m-1"))
    scene.do(deeds.AddMachine("m-2"))
    first, second = scene.truth().machines

    scene.do(deeds.DeleteMachine(first.id))
    scene.do(deeds.StopMachine(second.id))

    (left,) = scene.truth().machines
    assert (left.name, left.state) == ("m-2", InstanceState.STOPPED)
    scene.do(deeds.StartMachine(second.id))
    assert scene.truth(NOW + 60).machines[0].state is InstanceState.RUNNING


def test_what_people_do_to_balancers_is_seen():
    scene = Scene()
    scene.do(foreign())
    (made,) = scene.truth().balancers.values()

    scene.do(deeds.AddPort(made.id, 81, 30081))
    scene.do(deeds.RemoveMember(made.id, "m-1"))

    now = scene.truth().balancers[made.id]
    assert (made.owner, made.members, len(made.addresses)) == (THEIRS, {"m-1"}, 1)
    assert (now.ports, now.members) == ({Port(80, 30080), Port(81, 30081)}, frozenset())
    assert now.record != made.record
    scene.do(deeds.DeleteBalancer(made.id))
    assert not scene.truth().balancers


def test_what_people_do_to_routes_is_seen():
    scene = Scene()
    scene.do(deeds.AddMachine("m-1"))
    scene.do(deeds.AddRoute("10.1.0.0/24", "m-1", "other-cluster"))
    (made,) = scene.truth().routes.values()

    scene.do(deeds.DeleteRoute(made))

    assert (made.destination, made.target) == ("10.1.0.0/24", "m-1")
    assert made.cluster == "other-cluster"
    assert not scene.truth().routes


def test_what_stayed_the_same_is_not_told_anew():
    scene = Scene()
    scene.do(foreign())
    scene.do(deeds.AddMachine("m-1"))
    before = scene.truth(NOW + 10)

    scene.do(deeds.AddRoute("10.1.0.0/24", "m-1", "other-cluster"))

    after = scene.truth(NOW + 20)
    assert after.machines is before.machines
    assert after.balancers is before.balancers
    assert after.routes != before.routes


def test_a_balancer_without_a_mark_is_nobodys():
    scene = Scene()
    scene.do(deeds.AddBalancer(name="a1", owner=None, port=80, node_port=1, member="m-1"))

    (made,) = scene.truth().balancers.values()

    assert made.owner is None
    assert not made.is_of("")
