"""The judge of the soak sees what is wrong, and nothing else."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from pileus.kube.model.core_v1 import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeSpec,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    Taint,
)
from pileus.kube.model.meta import ObjectMeta
from pileus_lab.local.model.records import (
    Balancer,
    Machine,
    Mark,
    Member,
    Port,
    Power,
    Traffic,
)
from tests.soak.verdict import (
    EXCLUDED,
    FINALIZER,
    SHUTDOWN,
    UNINITIALIZED,
    World,
    overgrown,
    problems,
)

MACHINE = Machine(
    id="i-1",
    name="n1",
    uuid="u",
    type="small",
    zone="z",
    power=Power.RUNNING,
    ready_at=0.0,
    internal=("127.0.0.9",),
)
NODE = Node(metadata=ObjectMeta(name="n1"), spec=NodeSpec(provider_id="local://i-1"))
SERVICE = Service(
    metadata=ObjectMeta(name="s", uid="uid", finalizers=(FINALIZER,)),
    spec=ServiceSpec(type="LoadBalancer", ports=(ServicePort(port=80, node_port=30080),)),
    status=ServiceStatus(
        load_balancer=LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="127.0.1.1"),))
    ),
)
OURS = Balancer(
    id="lb-1",
    name="s",
    mark=Mark(cluster="c", owner="uid"),
    addresses=("127.0.1.1",),
    ports=(Port(port=80, node_port=30080),),
    members=(Member(name="n1"),),
)
THEIRS = Balancer(id="lb-2", name="x", mark=Mark(), addresses=(), ports=(), members=())
GOOD = World("c", (NODE,), (SERVICE,), (MACHINE,), (OURS, THEIRS), {"lb-2": THEIRS})

changed = msgspec.structs.replace


def tainted(*keys: str) -> Node:
    taints = tuple(Taint(key=key) for key in keys)
    return changed(NODE, spec=NodeSpec(provider_id="local://i-1", taints=taints))


def served(**spec: object) -> Service:
    assert SERVICE.spec
    return changed(SERVICE, spec=changed(SERVICE.spec, **spec))


def with_balancer(**parts: object) -> Callable[[World], World]:
    return lambda world: replace(world, balancers=(changed(OURS, **parts), THEIRS))


def test_a_world_that_is_as_it_should_be_has_no_problems():
    assert problems(GOOD) == []
    stopped = changed(MACHINE, power=Power.STOPPED)
    assert problems(replace(GOOD, machines=(stopped,), nodes=(tainted(SHUTDOWN),))) == []
    assert problems(with_balancer(members=())(replace(GOOD, machines=(stopped,), nodes=()))) == []
    out = changed(NODE, metadata=changed(NODE.metadata, labels={EXCLUDED: "true"}))
    assert problems(with_balancer(members=())(replace(GOOD, nodes=(out,)))) == []


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda w: replace(w, nodes=()), "has no node"),
        (lambda w: replace(w, machines=()), "has no machine"),
        (lambda w: replace(w, nodes=(tainted(UNINITIALIZED),)), "not initialized"),
        (lambda w: replace(w, nodes=(tainted(SHUTDOWN),)), "machine is running"),
        (lambda w: replace(w, machines=(changed(MACHINE, id="i-2"),)), "is not i-2"),
        (lambda w: replace(w, balancers=(THEIRS,)), "has 0 balancers"),
        (lambda w: replace(w, balancers=(OURS, changed(OURS, id="3"), THEIRS)), "has 2 balancers"),
        (lambda w: replace(w, balancers=(OURS,)), "someone else's balancer x was touched"),
        (lambda w: replace(w, services=()), "is an orphan"),
        (lambda w: replace(w, services=(served(type="ClusterIP"),)), "is an orphan"),
        (lambda w: replace(w, services=(served(load_balancer_class="a/b"),)), "is an orphan"),
        (lambda w: replace(w, services=(served(type="ClusterIP"),)), "still claimed"),
        (lambda w: replace(w, services=(served(session_affinity="ClientIP"),)), "affinity"),
        (lambda w: replace(w, services=(changed(SERVICE, status=None),)), "shows set()"),
        (
            lambda w: replace(w, services=(changed(SERVICE, metadata=ObjectMeta(uid="uid")),)),
            "no finalizer",
        ),
        (
            lambda w: replace(
                w,
                services=(
                    changed(
                        SERVICE,
                        metadata=changed(
                            SERVICE.metadata, deletion_timestamp=datetime(2030, 1, 1, tzinfo=UTC)
                        ),
                    ),
                ),
            ),
            "still being deleted",
        ),
        (with_balancer(ports=()), "ports"),
        (with_balancer(members=()), "1 too few"),
        (with_balancer(members=(*OURS.members, Member(name="odd"))), "1 too many"),
        (with_balancer(traffic=Traffic(sources=("10.0.0.0/8",))), "may be reached from"),
        (with_balancer(traffic=Traffic(drain_seconds=1)), "drains for 1 s, not 30"),
    ],
)
def test_every_difference_is_seen(spoil: Callable[[World], World], told: str):
    assert any(told in problem for problem in problems(spoil(GOOD))), problems(spoil(GOOD))


def test_a_map_that_is_larger_than_what_exists_is_seen():
    text = (
        'pileus_remembered_objects{memory="services/notes"} 3.0\n'
        'pileus_remembered_objects{memory="objects/notices"} 6.0\n'
    )

    assert overgrown(text, 5, 3) == []
    assert overgrown(text, 5, 2) == [
        "services/notes has entries for 3 objects, of 5 nodes and 2 Services"
    ]
    assert overgrown("", 5, 2) == ["no map of per-object state is counted"]
