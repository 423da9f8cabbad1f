"""Which steps lead to the wanted network, and in which words they are told to `ip`."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus_lab.local.model.machines import CreateMachine, StopMachine
from pileus_lab.local.model.routes import CreateRoute
from pileus_lab.local.model.state import Settings, State
from pileus_lab.local.netns.network import (
    Address,
    Host,
    Network,
    Route,
    first_host,
    wanted_network,
)
from pileus_lab.local.netns.plan import (
    PEER,
    ROUTER,
    AddRoute,
    Join,
    RemoveRoute,
    SetLink,
    after,
    commands,
    device_of,
    plan,
)
from tests.unit.providers.local.clouds import moment

IDS = [f"i-000{number}0000000{number}" for number in range(4)]
DESTINATIONS = ["10.244.1.0/24", "10.244.2.0/24", "10.77.0.9/32", "fd10::/64"]
ADDRESSES = st.builds(
    Address, st.sampled_from(["eth0", "lo"]), st.sampled_from(["10.77.0.2", "10.77.0.3", "fd77::2"])
)
HOSTS = st.dictionaries(
    st.sampled_from(IDS), st.builds(Host, st.frozensets(ADDRESSES), st.booleans())
)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    hosts = draw(HOSTS)
    up = [machine for machine, host in hosts.items() if host.is_up]
    destinations = draw(st.sets(st.sampled_from(DESTINATIONS))) if up else set[str]()
    via = st.sampled_from(["", "10.77.0.2", "10.77.0.3"])
    routes = {one: Route(one, draw(st.sampled_from(up)), draw(via)) for one in destinations}
    return Network(hosts, routes)


@given(networks(), networks())
def test_a_plan_leads_from_any_network_to_any_other_and_a_second_one_is_empty(
    present: Network, wanted: Network
):
    reached = reduce(after, plan(present, wanted), present)

    assert reached == wanted
    assert plan(reached, wanted) == ()


@given(networks(), networks())
def test_no_route_ever_leads_to_a_link_that_is_down_or_gone(present: Network, wanted: Network):
    network = present
    for step in plan(present, wanted):
        network = after(network, step)
        up = {machine for machine, host in network.hosts.items() if host.is_up}
        assert {route.machine for route in network.routes.values()} <= up


@given(networks(), networks())
def test_what_stays_the_same_is_left_alone(present: Network, wanted: Network):
    changed = {step.route for step in plan(present, wanted) if isinstance(step, RemoveRoute)}

    assert not changed & set(wanted.routes.values())
    assert not any(
        step.machine in present.hosts for step in plan(present, wanted) if isinstance(step, Join)
    )


@given(networks(), networks())
def test_every_step_is_told_to_the_router_or_to_the_instance_it_is_about(
    present: Network, wanted: Network
):
    for step in plan(present, wanted):
        machine = step.route.machine if isinstance(step, AddRoute | RemoveRoute) else step.machine
        assert {batch.where for batch in commands(step)} <= {ROUTER, machine}
        words = [word for batch in commands(step) for line in batch.lines for word in line.split()]
        assert (PEER in words) is isinstance(step, Join)


def cloud_state(*operations: CreateMachine | StopMachine | CreateRoute) -> State:
    state = State()
    for operation in operations:
        state = operation.step(state, moment(settings=Settings(internal_pool="10.77.0.0/16")))[0]
    return state


def test_a_route_is_real_and_its_first_host_is_at_the_instance():
    state = cloud_state(
        CreateMachine(name="a", ipv6=True), CreateRoute(destination="10.244.1.0/24", target="a")
    )
    (machine,) = state.machines.values()
    v4, v6 = machine.internal

    network = wanted_network(state, 0.0)

    assert network.routes == {
        f"{v4}/32": Route(f"{v4}/32", machine.id),
        f"{v6}/128": Route(f"{v6}/128", machine.id),
        "10.244.1.0/24": Route("10.244.1.0/24", machine.id, via=v4),
    }
    assert network.hosts[machine.id] == Host(
        frozenset({Address("eth0", v4), Address("eth0", v6), Address("lo", "10.244.1.1")}), True
    )


def test_a_stopped_instance_keeps_its_namespace_and_loses_its_routes():
    state = cloud_state(
        CreateMachine(name="a"),
        CreateRoute(destination="10.244.1.0/24", target="a"),
        StopMachine(machine="a"),
    )

    network = wanted_network(state, 0.0)

    assert [host.is_up for host in network.hosts.values()] == [False]
    assert network.routes == {}


def test_no_route_can_take_an_instance_its_own_address():
    state = cloud_state(CreateMachine(name="a"), CreateMachine(name="b"))
    a, b = state.machines.values()
    taken = f"{a.internal[0]}/32"
    state = CreateRoute(destination=taken, target="b").step(state, moment())[0]

    assert wanted_network(state, 0.0).routes[taken] == Route(taken, a.id)
    assert b.id in wanted_network(state, 0.0).hosts


@pytest.mark.parametrize(
    ("destination", "host"),
    [
        ("10.244.1.0/24", "10.244.1.1"),
        ("10.244.1.7/32", "10.244.1.7"),
        ("fd10::/64", "fd10::1"),
        ("::/0", "::1"),
    ],
)
def test_the_first_host_of_a_destination(destination: str, host: str):
    assert first_host(destination) == host


def test_a_link_that_comes_up_gets_back_what_the_kernel_dropped():
    (batch,) = commands(SetLink(IDS[0], True))

    assert batch.where == ROUTER
    assert any("address replace" in line for line in batch.lines)


def test_the_kernel_takes_the_names_of_links():
    names = [device_of(f"i-{serial:04x}{2**32 - 1:08x}") for serial in (1, 2, 0xFFFF, 0xFFFFFF)]

    assert all(len(name) <= 15 for name in names)
    assert len(set(names)) == len(names)
