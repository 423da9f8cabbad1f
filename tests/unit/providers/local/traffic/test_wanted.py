from pileus.cloud.balancer import Transport
from pileus_lab.local.model.balancers import CreateBalancer
from pileus_lab.local.model.machines import CreateMachine, FailPorts, StopMachine
from pileus_lab.local.model.records import Member, Port, Probe, Traffic
from pileus_lab.local.model.state import Operation, Settings, State
from pileus_lab.local.traffic.desired import Answering, Backend, Place, next_change, wanted
from pileus_lab.local.traffic.health_checks import Subject, subjects
from tests.unit.providers.local.clouds import moment

TCP, UDP = Transport.TCP, Transport.UDP


def after(*operations: Operation[object], settings: Settings | None = None) -> State:
    state = State()
    for operation in operations:
        state, _ = operation.step(state, moment(settings=settings))
    return state


def balancer(*members: str, probe: Probe | None = None) -> CreateBalancer:
    return CreateBalancer(
        name="web",
        ports=(Port(port=80, node_port=30080), Port(port=53, node_port=30053, transport=UDP)),
        members=tuple(Member(name=name) for name in members),
        traffic=Traffic(probe=probe),
    )


def test_each_port_of_a_balancer_leads_to_the_members_node_port():
    want = wanted(after(CreateMachine(name="a"), balancer("a", "unknown")), 0.0)

    assert [(str(front.place), front.backends) for front in want.fronts] == [
        ("127.78.0.2:53/UDP", (Backend("a", "127.77.0.1", 30053),)),
        ("127.78.0.2:80/TCP", (Backend("a", "127.77.0.1", 30080),)),
    ]


def test_an_instance_answers_only_where_a_balancer_leads_to_it():
    state = after(CreateMachine(name="a"), CreateMachine(name="b"), balancer("a"))

    want = wanted(state, 0.0)

    assert {one.place for one in want.answering} == {
        Place("127.77.0.1", 30080, TCP),
        Place("127.77.0.1", 30053, UDP),
    }
    assert want.running == {"127.77.0.1", "127.77.0.2"}


def test_an_instance_that_does_not_run_answers_nothing():
    state = after(CreateMachine(name="a"), balancer("a"), StopMachine(machine="a"))

    assert wanted(state, 0.0).answering == ()


def test_an_instance_answers_once_it_has_booted():
    slow = Settings(boot_seconds=10)
    state = after(CreateMachine(name="a"), balancer("a"), settings=slow)

    assert (wanted(state, 9.9).answering, next_change(state, 9.9)) == ((), 10)
    assert len(wanted(state, 10.0).answering) == 2
    assert next_change(state, 10.0) is None


def test_health_checks_are_answered_on_their_own_port():
    probe = Probe(node_port=31000, path="/ready")
    state = after(
        CreateMachine(name="a"), balancer("a", probe=probe), FailPorts(machine="a", ports=(31000,))
    )

    (health,) = [one for one in wanted(state, 0.0).answering if one.health_paths]

    place = Place("127.77.0.1", 31000, TCP)
    assert health == Answering("a", 31000, place, frozenset({"/ready"}), is_failing=True)


def test_a_member_is_checked_once_however_many_addresses_lead_to_it():
    both = CreateBalancer(
        name="web",
        ports=(Port(port=80, node_port=30080),),
        members=(Member(name="a"),),
        families=("IPv4", "IPv6"),
    )
    state = after(CreateMachine(name="a"), both)
    (made,) = state.balancers.values()

    assert subjects(wanted(state, 0.0).fronts) == (
        Subject(made.id, "a", "127.77.0.1", (Port(port=80, node_port=30080),), None),
    )


def test_places_are_written_as_urls_have_them():
    assert str(Place("::1", 80, TCP)) == "[::1]:80/TCP"
