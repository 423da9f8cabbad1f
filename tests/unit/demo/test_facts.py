"""What nodes, instances and balancers are said to be, and to have become."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pileus.cloud.balancer import Effect
from pileus.kube.model.core_v1 import (
    Event,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectReference,
    Service,
    ServiceSpec,
    ServiceStatus,
    Taint,
)
from pileus.kube.model.meta import ObjectMeta
from pileus_lab.demo.facts import (
    UNINITIALIZED,
    ZONE,
    address_of_service,
    balancer_row,
    cloud_changes,
    event_row,
    listeners,
    missing_in,
    node_changes,
    node_rows,
    service_changes,
)
from pileus_lab.demo.state import NodeState
from pileus_lab.local.model.records import Balancer, Machine, Mark, Member, Port, Power
from pileus_lab.local.model.state import State

NEW = Node(
    metadata=ObjectMeta(name="web-1"),
    spec=NodeSpec(taints=(Taint(key=UNINITIALIZED, effect="NoSchedule"),)),
)
DONE = Node(
    metadata=ObjectMeta(name="web-1", labels={ZONE: "local-1a"}),
    spec=NodeSpec(provider_id="local://i-1"),
    status=NodeStatus(
        addresses=(
            NodeAddress(type="Hostname", address="web-1"),
            NodeAddress(type="InternalIP", address="127.90.0.1"),
        ),
        conditions=(NodeCondition(type="Ready", status="True"),),
    ),
)
MACHINE = Machine(
    id="i-1",
    name="web-1",
    uuid="u",
    type="small",
    zone="local-1a",
    power=Power.PENDING,
    ready_at=10.0,
    internal=("127.90.0.1",),
)
ALL = "address 127.90.0.1, zone local-1a, taint removed, ID local://i-1, Ready"
SHOP = Balancer(
    id="lb-1",
    name="shop",
    mark=Mark(),
    addresses=("127.90.0.129", "::1"),
    ports=(Port(port=8080, node_port=30080),),
    members=(Member(name="web-1"), Member(name="web-2")),
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param(None, NEW, [(Effect.CREATE, "node web-1 registers, tainted")], id="comes"),
        pytest.param(None, DONE, [(Effect.CREATE, "node web-1 registers")], id="untainted"),
        pytest.param(DONE, None, [(Effect.DELETE, "node web-1")], id="goes"),
        pytest.param(DONE, DONE, [], id="same"),
        pytest.param(
            NEW,
            DONE,
            [(Effect.UPDATE, f"node web-1: {ALL}")],
            id="initialized",
        ),
    ],
)
def test_what_became_of_a_node_is_told_in_one_line(
    old: Node | None, new: Node | None, told: list[tuple[Effect, str]]
):
    assert list(node_changes(old, new)) == told


def test_a_node_is_initialized_when_nothing_is_missing():
    assert missing_in(DONE) == ""
    assert missing_in(NEW) == "the taint is still there, no provider ID, no zone, no address"


def test_instances_and_balancers_that_come_and_go_are_told():
    full = State(machines={"i-1": MACHINE}, balancers={"lb-1": SHOP})
    other = replace(full, machines={"i-2": MACHINE})

    assert list(cloud_changes(State(), full)) == [
        (Effect.CREATE, "instance web-1 in local-1a"),
        (Effect.CREATE, "balancer shop at 127.90.0.129:8080 [::1]:8080"),
    ]
    assert [effect for effect, _ in cloud_changes(full, State())] == [Effect.DELETE] * 2
    assert [effect for effect, _ in cloud_changes(full, other)] == [Effect.CREATE, Effect.DELETE]


@pytest.mark.parametrize(
    ("machines", "nodes", "now", "state"),
    [
        pytest.param([MACHINE], [], 5.0, NodeState.BOOTING, id="no-node-yet"),
        pytest.param([MACHINE], [NEW], 15.0, NodeState.TAINTED, id="registered"),
        pytest.param([MACHINE], [DONE], 15.0, NodeState.INITIALIZED, id="initialized"),
        pytest.param([], [DONE], 15.0, NodeState.LOST, id="instance-gone"),
    ],
)
def test_instance_and_node_stand_in_one_row(
    machines: list[Machine], nodes: list[Node], now: float, state: NodeState
):
    (row,) = node_rows(machines, nodes, now)

    assert (row.name, row.state) == ("web-1", state)


def test_a_balancer_shows_who_answered_how_often():
    row = balancer_row(SHOP, {"web-1": 4, "web-9": 1})

    assert (row.members, row.answers) == (("web-1", "web-2"), {"web-1": 4, "web-2": 0})


def test_an_event_names_what_it_is_about():
    about = ObjectReference(kind="Node", name="web-1")
    row = event_row(Event(involved_object=about, reason="Synced", type="Warning"))

    assert (row.about, row.reason, row.is_warning) == ("node/web-1", "Synced", True)


WISHED = Service(metadata=ObjectMeta(name="shop"), spec=ServiceSpec(type="LoadBalancer"))
SERVED = Service(
    metadata=WISHED.metadata,
    spec=WISHED.spec,
    status=ServiceStatus(
        load_balancer=LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="127.90.0.129"),))
    ),
)
GOING = Service(
    metadata=ObjectMeta(name="shop", deletion_timestamp=datetime(2030, 1, 1, tzinfo=UTC)),
    spec=SERVED.spec,
    status=SERVED.status,
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param(None, WISHED, [(Effect.CREATE, "service shop")], id="new"),
        pytest.param(
            WISHED, SERVED, [(Effect.UPDATE, "service shop: address 127.90.0.129")], id="served"
        ),
        pytest.param(
            SERVED, GOING, [(Effect.UPDATE, "service shop: is being deleted")], id="going"
        ),
        pytest.param(SERVED, SERVED, [], id="the same"),
        pytest.param(GOING, None, [(Effect.DELETE, "service shop")], id="gone"),
        pytest.param(None, Service(spec=ServiceSpec(type="ClusterIP")), [], id="not balanced"),
    ],
)
def test_a_service_is_told_as_it_comes_gets_its_address_and_goes(old, new, told):
    assert list(service_changes(old, new)) == told


def test_a_service_without_an_address_says_nothing():
    assert address_of_service(WISHED) == ""
    assert address_of_service(SERVED) == "127.90.0.129"


def test_balancers_and_machines_listen_where_ports_are():
    state = State(machines={"i-1": MACHINE}, balancers={"lb-1": SHOP})

    assert listeners(state) == {
        *((address, port.port) for address in SHOP.addresses for port in SHOP.ports),
        *((address, port.node_port) for address in MACHINE.internal for port in SHOP.ports),
    }
    assert listeners(State(machines={"i-1": MACHINE})) == set()
