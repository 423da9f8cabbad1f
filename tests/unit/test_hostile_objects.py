"""The largest hostile objects that the API server stores cost a pass little CPU time.

The loop serves all objects, the lease and the probes: one object may take 50 ms of it in one pass.
The pure steps of a pass are measured in CPU time of a reference machine, not by the clock (see
`pileus.testing.cpu_time`). The attacks that this found took seconds or hours. An attack may need
two dimensions of an object, or a Service and a Node: all pairs of dimensions are tried, and random
objects of any size that is stored.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, TypeAlias, TypeVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pileus.cloud import fingerprint, selectors
from pileus.cloud.balancer import Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.model import Address, Instance, InstanceId, NodeRef
from pileus.controllers.node.observation import Observation as NodeObservation
from pileus.controllers.node.observation import examine
from pileus.controllers.node.plan import is_worth_a_pass
from pileus.controllers.node.plan import plan as node_plan
from pileus.controllers.service.annotations import Classes, written_by_us
from pileus.controllers.service.desired import Desires
from pileus.controllers.service.events import message_of
from pileus.controllers.service.lines import lines
from pileus.controllers.service.observation import Observation
from pileus.controllers.service.plan import Rules, plan
from pileus.controllers.service.status import is_same_ingress, patch_of, published_ingress
from pileus.controllers.service.steps import CheckBalancer, Report
from pileus.controllers.volume.objects import Rules as VolumeRules
from pileus.controllers.volume.observation import Observation as VolumeObservation
from pileus.controllers.volume.plan import plan as volume_plan
from pileus.kube.model.core_v1 import Node, ObjectReference, PersistentVolumeClaim, Service
from pileus.kube.model.storage_v1 import StorageClass
from pileus.objects import ranges
from pileus.objects.nodes import reference
from pileus.objects.ownership import owner_by
from pileus.providers.openstack import balancer_plan, networks, octavia
from pileus.providers.openstack.annotations import ANNOTATIONS, OPTIONS
from pileus.providers.openstack.balancer_seen import Parts, Seen
from pileus.providers.openstack.config import LoadBalancer, OpenStackConfig
from pileus.providers.openstack.desired import Setup, desire
from pileus.providers.openstack.features import OctaviaFeatures
from pileus.providers.openstack.networks import Topology
from pileus.providers.openstack.neutron import FixedIp, Network, Port, Subnet
from pileus.providers.openstack.ports import Port as DesiredPort
from pileus.providers.openstack.security_group import SecurityGroups
from pileus.runtime.events import Correlator, Occurrence
from pileus.telemetry.klog import JsonFormat, TextFormat
from pileus.telemetry.log import VALUES
from pileus.telemetry.passes import clean
from pileus.testing.cpu_time import cpu_time, scaled_cpu_time

T = TypeVar("T")
MOST = 0.05
"""Seconds of CPU time for one pass."""
ROOM = 2
"""How much longer a measurement may be than the code takes: other processes use the caches of the
machine, and a profiler or coverage does not slow everything down alike."""
REMEMBERED = (
    fingerprint.usual_address,
    fingerprint.usual_network,
    networks.addressed,
    ranges.parse_range,
    selectors.parse_selector,
    selectors.select,
)
"""What a pass finds in a cache if it is not the first one: an author can change the object again
and again."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANNOTATION_BYTES = 255 * 1024
"""The API server allows 256 KiB of annotations on an object."""


def filled(*parts: str) -> str:
    """Returns the parts again and again, as long as an annotation can be."""
    unit = "".join(parts)
    return unit * (ANNOTATION_BYTES // len(unit.encode()))


VALUES_OF_USERS = {
    "letters": filled("a"),
    "digits": filled("1"),
    "blanks": filled(" "),
    "labels": filled("a-"),
    "domains": filled("a."),
    "list": filled("a,"),
    "empty list": filled(","),
    "negations": filled("!a,"),
    "equations": filled("a="),
    "pairs": ",".join(f"k{number}=v" for number in range(ANNOTATION_BYTES // 9)),
    "ranges": ",".join(f"10.{n >> 8 & 255}.{n & 255}.0/24" for n in range(17_000)),
    "names of secrets": filled("token-"),
    "escaped secrets": filled("password=\\"),
    "web tokens": filled("eyJaaaa-"),
    "URLs": filled("://a:"),
    "private key": "-----BEGIN " + filled("A "),
    "bearers": filled("bearer "),
    "basic": "basic " + filled("a"),
    "control characters": filled("\x1b"),
    "emoji": filled("\U0001f600"),
    "braces": filled("{a,b}"),
    "expression": "~" + ".?" * 40,
    "long expression": "~" + filled("(a*)*"),
    "JSON": json.dumps({f"k{number}": "" for number in range(ANNOTATION_BYTES // 14)}),
    "nested JSON": filled("["),
}


def metadata(**parts: Any) -> dict[str, Any]:
    return {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "1", **parts}


def service(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": metadata(annotations=annotations or {}),
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}],
            "ipFamilies": ["IPv4"],
            **spec,
        },
    }


def many(prefix: str) -> dict[str, str]:
    """Returns unknown annotations, similar to known ones."""
    names = (f"{prefix}floating-subnet-{number}" for number in range(5000))
    return dict.fromkeys(names, "")


def hostile_services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    found["unknown names"] = service(many("loadbalancer.openstack.org/"))
    found["unknown core names"] = service(many("pileus.dev/"))
    found["source ranges"] = service(
        loadBalancerSourceRanges=[f"10.{n >> 8 & 255}.{n & 255}.0/24" for n in range(65_000)]
    )
    found["bad source ranges"] = service(loadBalancerSourceRanges=[f"x{n}" for n in range(100_000)])
    found["ports"] = service(
        ports=[{"port": n, "name": f"p{n}", "protocol": "TCP"} for n in range(1, 20_000)],
        allocateLoadBalancerNodePorts=False,
    )
    found["node ports"] = service(
        ports=[
            {"port": n, "nodePort": 30_000 + n, "name": f"p{n}", "protocol": "UDP"}
            for n in range(2700)
        ]
    )
    found["address"] = service(loadBalancerIP="1" * 1_400_000)
    found["class"] = service(loadBalancerClass="a/" + "b" * 1_400_000)
    found["affinity"] = service(sessionAffinity="a" * 1_400_000)
    found["finalizers"] = service()
    found["finalizers"]["metadata"]["finalizers"] = [f"a/{n}" for n in range(80_000)]
    found["ingress"] = service() | {
        "status": {
            "loadBalancer": {
                "ingress": [{"ip": f"10.{n >> 8 & 255}.{n & 255}.1"} for n in range(40_000)]
            }
        }
    }
    found["conditions"] = service() | {
        "status": {"conditions": [{"type": f"t{n}", "status": "True"} for n in range(20_000)]}
    }
    return found


CORE_NAMES = tuple(f"pileus.dev/{each}" for each in ("manage", "adopt", "members", "written"))
RULES = Rules(Desires(cluster="c", annotations=ANNOTATIONS), Classes.of("openstack"))
SERVICES = hostile_services()


@dataclass
class Cost:
    """CPU time of the steps of one pass."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def of(self, step: str, function: Callable[..., T], *arguments: Any) -> T | CloudError:
        answers: list[T | CloudError] = []

        def call() -> None:
            try:
                answers.append(function(*arguments))
            except CloudError as error:
                answers.append(error)

        self.seconds[step] = self.seconds.get(step, 0) + cpu_time(call)
        return answers[0]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def check_cost(run: Callable[[Cost], None]) -> None:
    """Fails if a pass takes too long, each time that it is run."""
    costs: list[Cost] = []

    def measure() -> float:
        for each in REMEMBERED:
            each.cache_clear()
        costs.append(Cost())
        run(costs[-1])
        return costs[-1].total

    taken = scaled_cpu_time(measure, MOST * ROOM)
    assert taken < MOST * ROOM, (taken, costs[-1].seconds)


def log(text: object) -> None:
    record = logging.LogRecord("x", logging.INFO, "f.py", 1, "Cannot", (), None)
    setattr(record, VALUES, {"err": text})
    for form in (TextFormat(), JsonFormat()):
        form.format(record)


def report(cost: Cost, text: object) -> None:
    """The ways of a text: log, journal, event."""
    about = ObjectReference(kind="Service", name="web", namespace="shop")
    cost.of("log", log, text)
    cost.of("journal", clean, str(text))
    cost.of("event", Correlator().count, Occurrence(about, "Warning", "Why", str(text), NOW))


Refs: TypeAlias = frozenset[NodeRef]
NO_NODES: Refs = frozenset()


def check_pass(given: Mapping[str, Any], nodes: Refs = NO_NODES) -> None:
    """Checks the first pass over a Service, and one over a load balancer that exists."""
    service = msgspec.convert(given, Service)
    for provider in (creation, upkeep):
        check_cost(lambda cost, step=provider: pass_over(service, nodes, cost, step))


def pass_over(
    service: Service, nodes: Refs, cost: Cost, provider: Callable[[Wish, Cost], None]
) -> None:
    seen = Observation(service=service, time=0.0, date=NOW, members=nodes)
    steps = cost.of("plan", plan, RULES, seen)
    assert isinstance(steps, tuple)
    cost.of("lines", lambda: [clean(str(each)) for each in lines(service, steps)])
    cost.of("written", written_by_us, service)
    cost.of("ingress", is_same_ingress, published_ingress(service), ())
    for step in steps:
        if isinstance(step, Report):
            report(cost, cost.of("message", message_of, step.error))
            report(cost, step.error)
            cost.of("patch", patch_of, service, step.write)
        if isinstance(step, CheckBalancer):
            report(cost, "; ".join(step.ignored))
            check_balancer(cost, step.desired, provider)


def check_balancer(cost: Cost, wish: Wish, provider: Callable[[Wish, Cost], None]) -> None:
    cost.of("fingerprint", lambda: wish.fingerprint)
    cost.of("equal", lambda: (hash(wish), wish == replace(wish)))
    provider(wish, cost)


PUBLIC = Network(id="public", name="public", external=True, subnets=("pub-0",))
TOPOLOGY = Topology(
    (
        Subnet(id="nodes", name="nodes", network_id="nodes", cidr="10.0.0.0/8"),
        *(
            Subnet(
                id=f"pub-{n}",
                name=f"pub-{n}" * 20,
                network_id="public",
                cidr=f"203.0.{n}.0/24",
                tags=("a", "b"),
            )
            for n in range(20)
        ),
    ),
    (PUBLIC,),
    (
        Port(
            id="p",
            network_id="nodes",
            device_id="n0",
            fixed_ips=(FixedIp(subnet_id="nodes", ip_address="10.0.0.1"),),
        ),
    ),
)
IN_A_SUBNET = LoadBalancer(subnet_id="nodes")
MANAGED = LoadBalancer(
    subnet_id="nodes", create_monitor=True, manage_security_groups=True, lb_provider="ovn"
)
"""With all parts that there can be: a rule of the security group for each port and source range."""


def creation(wish: Wish, cost: Cost) -> None:
    setup = Setup(OpenStackConfig(load_balancer=IN_A_SUBNET))
    seen = Seen(owner=wish.owner, topology=TOPOLOGY, is_full=True)
    check_changes(cost, wish, cost.of("observe", observed, wish, seen, setup), setup)


def upkeep(wish: Wish, cost: Cost) -> None:
    """Every part differs, and it is compared twice: at the end of an observation, and after it."""
    setup = Setup(OpenStackConfig(load_balancer=MANAGED), OctaviaFeatures((2, 26), "ovn"))
    spec = wish.spec
    assert spec is not None
    less = replace(spec, source_ranges=frozenset(), members=frozenset([*spec.members][1:]))
    try:
        before = desire(wish, less, setup)
        parts = parts_of(before.ports)
    except CloudError:
        return
    found = octavia.LoadBalancer(
        id="lb",
        name=before.name,
        tags=(*before.tags, before.created_tag),
        vip_address="10.0.0.9",
        vip_port_id="vip",
        vip_subnet_id="nodes",
    )
    groups = SecurityGroups((), TOPOLOGY.ports)
    seen = Seen(
        owner=wish.owner, found=found, parts=parts, groups=groups, topology=TOPOLOGY, is_full=True
    )
    after = cost.of("observe", observed, wish, seen, setup)
    check_changes(cost, wish, after, setup)
    check_changes(cost, wish, after, setup)


def observed(wish: Wish, seen: Seen, setup: Setup) -> Seen:
    assert wish.spec is not None
    desired = desire(wish, wish.spec, setup)
    assert desired.request is not None
    return replace(seen, desired=desired)


def check_changes(cost: Cost, wish: Wish, seen: Seen | CloudError, setup: Setup) -> None:
    if isinstance(seen, CloudError):
        report(cost, seen)
        return
    for notice in seen.desired.notices if seen.desired else ():
        report(cost, notice.message)
    found = cost.of("changes", balancer_plan.changes, wish, seen, setup)
    if isinstance(found, CloudError):
        report(cost, found)
    else:
        cost.of("summaries", lambda: [clean(each.summary) for each in found])


def parts_of(ports: tuple[DesiredPort, ...]) -> Parts:
    """Returns the parts that a load balancer with these ports consists of."""
    return Parts(
        listeners=tuple(
            octavia.Listener(
                id=f"l{n}",
                protocol=one.protocol,
                protocol_port=one.port,
                default_pool_id=f"p{n}",
                allowed_cidrs=("192.0.2.0/24",),
                tags=one.tags,
            )
            for n, one in enumerate(ports)
        ),
        pools=tuple(
            octavia.Pool(
                id=f"p{n}",
                protocol=one.pool_protocol,
                lb_algorithm=one.algorithm,
                tags=one.tags[1:],
            )
            for n, one in enumerate(ports)
        ),
        members={
            f"p{n}": tuple(
                octavia.Member(
                    id=f"{each.name}-{n}",
                    name=each.name,
                    address=each.address,
                    protocol_port=each.protocol_port,
                )
                for each in one.members
            )
            for n, one in enumerate(ports)
        },
    )


@pytest.mark.parametrize("name", [*(each.name for each in OPTIONS), *CORE_NAMES])
def test_a_hostile_annotation_costs_a_pass_little(name: str) -> None:
    for value in VALUES_OF_USERS.values():
        check_pass(service({name: value}), FEW_NODES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_hostile_service_costs_a_pass_little(name: str) -> None:
    check_pass(SERVICES[name], FEW_NODES)


def ports(number: int, *, node_ports: bool = True) -> dict[str, Any]:
    return {
        "allocateLoadBalancerNodePorts": node_ports,
        "ports": [
            {"port": n, "name": f"p{n}", **({"nodePort": 30_000 + n} if node_ports else {})}
            for n in range(1, number + 1)
        ],
    }


def source_ranges(number: int) -> dict[str, Any]:
    return {
        "loadBalancerSourceRanges": [f"10.{n >> 8 & 255}.{n & 255}.0/24" for n in range(number)]
    }


def ranges_of_both(number: int) -> dict[str, Any]:
    six = [f"fd00:{n >> 16:x}:{n & 65_535:x}::/48" for n in range(number // 2)]
    four = source_ranges(number - number // 2)["loadBalancerSourceRanges"]
    return {"ipFamilies": ["IPv4", "IPv6"], "loadBalancerSourceRanges": [*four, *six]}


def annotation(name: str, value: str) -> dict[str, Any]:
    return {"annotations": {f"loadbalancer.openstack.org/{name}": value}}


def nodes(number: int, addresses: int = 1) -> Refs:
    """Returns members; the first one has so many addresses, the last of which is in IPv4."""
    found: list[NodeRef] = []
    for n in range(number):
        kubelet: list[dict[str, str]] = [
            {"type": "InternalIP", "address": f"fd00::{each:x}"}
            for each in range(addresses - 1 if n == 0 else 0)
        ]
        kubelet.append({"type": "InternalIP", "address": f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}"})
        given = {
            "metadata": {"name": f"n{n}", "labels": {"pool": "web"}},
            "spec": {"providerID": f"openstack:///n{n}"},
            "status": {"addresses": kubelet},
        }
        found.append(reference(msgspec.convert(given, Node)))
    return frozenset(found)


FEW_NODES = nodes(3)
DIMENSIONS: dict[str, dict[str, Any]] = {
    "ports": ports(1000),
    "ports without node ports": ports(1000, node_ports=False),
    "some ports": ports(100),
    "few ports": ports(5),
    "ranges": source_ranges(2000),
    "some ranges": source_ranges(100),
    "few ranges": source_ranges(10),
    "ranges of both families": ranges_of_both(2000),
    "nodes": {"nodes": nodes(1000)},
    "some nodes": {"nodes": nodes(100)},
    "few nodes": {"nodes": nodes(10)},
    "addresses of a node": {"nodes": nodes(10, addresses=20_000)},
    "tags": annotation("floating-subnet-tags", filled("a,")),
    "tags that are accepted": annotation("floating-subnet-tags", "a,b" * 300),
    "pattern": annotation("floating-subnet", "~" + "(a|b)*" * 40),
    "selector": annotation("node-selector", ",".join(f"!k{n}" for n in range(100))),
    "certificate": annotation("default-tls-container-ref", filled("a/")),
}
"""What an author chooses of a Service, or a kubelet of its Node: the largest that is stored or
accepted, and sizes whose product with another one is."""


@pytest.mark.parametrize("one", DIMENSIONS)
def test_a_pair_of_hostile_dimensions_costs_a_pass_little(one: str) -> None:
    for each, other in combinations(DIMENSIONS, 2):
        if each == one:
            check_combined(DIMENSIONS[one], DIMENSIONS[other])


def check_combined(*dimensions: Mapping[str, Any]) -> None:
    merged: dict[str, Any] = {"annotations": {}, "nodes": FEW_NODES}
    for each in dimensions:
        annotations = {**merged["annotations"], **each.get("annotations", {})}
        merged |= {**each, "annotations": annotations}
    members = merged.pop("nodes")
    check_pass(service(**merged), members)


LARGEST_OBJECT = 1_500_000
"""Bytes of an object that etcd stores."""
SIZES = st.sampled_from([1, 2, 5, 10, 11, 50, 100, 300, 1000, 1001, 2000, 2001, 5000, 20_000])
NAMES = st.sampled_from([each.name for each in OPTIONS] + [*CORE_NAMES, ranges.SOURCE_RANGES])
KINDS = st.sampled_from([*VALUES_OF_USERS])


def annotated(kinds: dict[str, str]) -> dict[str, Any]:
    most = ANNOTATION_BYTES // max(len(kinds), 1) // 4  # characters have up to four bytes
    return {"annotations": {name: VALUES_OF_USERS[kind][:most] for name, kind in kinds.items()}}


STORABLE = st.fixed_dictionaries(
    {},
    optional={
        "ports": SIZES.map(ports),
        "ports without node ports": SIZES.map(lambda n: ports(n, node_ports=False)),
        "ranges": SIZES.map(source_ranges),
        "ranges of both families": SIZES.map(ranges_of_both),
        "annotations": st.dictionaries(NAMES, KINDS, max_size=3).map(annotated),
        "address": st.tuples(KINDS, SIZES).map(
            lambda given: {"loadBalancerIP": VALUES_OF_USERS[given[0]][: given[1]]}
        ),
        "families": st.sampled_from([["IPv6"], ["IPv6", "IPv4"]]).map(
            lambda given: {"ipFamilies": given}
        ),
        "policy": st.just({
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 32_000,
            "sessionAffinity": "ClientIP",
        }),
    },
)
NODE_SETS = {
    (number, addresses): nodes(number, addresses)
    for number in (0, 1, 10, 100, 1000)
    for addresses in (1, 20_000)
    if number or addresses == 1
}


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(STORABLE, st.sampled_from([*NODE_SETS]))
def test_any_service_that_is_stored_costs_a_pass_little(
    given: dict[str, dict[str, Any]], nodes: tuple[int, int]
) -> None:
    merged = {name: value for each in given.values() for name, value in each.items()}
    if len(json.dumps(merged)) <= LARGEST_OBJECT:
        check_combined({**merged, "nodes": NODE_SETS[nodes]})


def test_a_pass_that_takes_too_long_is_noticed() -> None:
    def busy(cost: Cost) -> None:
        cost.of("step", lambda: [{each: str(each)} for each in range(2_000_000)])

    with pytest.raises(AssertionError, match="step"):
        check_cost(busy)


NODES: dict[str, dict[str, Any]] = {
    "annotations": {"metadata": metadata(annotations={f"a{n}": "" for n in range(40_000)})},
    "labels": {"metadata": metadata(labels={f"a{n}": "" for n in range(80_000)})},
    "addresses": {
        "metadata": metadata(),
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": f"10.{n >> 8 & 255}.{n & 255}.1"}
                for n in range(20_000)
            ]
        },
    },
    "IPv6 addresses": {
        "metadata": metadata(),
        "status": {
            "addresses": [{"type": "InternalIP", "address": f"fd00::{n:x}"} for n in range(20_000)]
        },
    },
    "taints": {
        "metadata": metadata(),
        "spec": {"taints": [{"key": f"a{n}", "effect": "NoSchedule"} for n in range(25_000)]},
    },
    "provider ID": {"metadata": metadata(), "spec": {"providerID": "a://" + "/" * 1_400_000}},
    "conditions": {
        "metadata": metadata(),
        "status": {"conditions": [{"type": f"t{n}", "status": "True"} for n in range(20_000)]},
    },
}


@pytest.mark.parametrize("name", NODES)
def test_a_hostile_node_costs_a_pass_little(name: str) -> None:
    check_cost(lambda cost: pass_over_node(msgspec.convert(NODES[name], Node), cost))


def pass_over_node(node: Node, cost: Cost) -> None:
    instance = Instance(
        id=InstanceId("i"), provider_id="a://i", addresses=(Address("InternalIP", "10.0.0.1"),)
    )

    cost.of("reference", reference, node)
    cost.of("worth", is_worth_a_pass, node, msgspec.convert(NODES["labels"], Node))
    facts = examine(instance)
    cost.of(
        "plan", node_plan, NodeObservation(node=node, whose=owner_by("a", None), answer=facts), NOW
    )


CLAIMS: dict[str, dict[str, Any]] = {
    "size": {"spec": {"resources": {"requests": {"storage": "1" * 1_000_000}}}},
    "digits after the point": {
        "spec": {"resources": {"requests": {"storage": "1." + "0" * 1_000_000}}}
    },
    "annotations": {"metadata": metadata(annotations={f"a{n}": "" for n in range(40_000)})},
    "class": {"spec": {"storageClassName": "a" * 1_000_000}},
    "access modes": {"spec": {"accessModes": ["ReadWriteOnce"] * 50_000}},
    "source": {"spec": {"dataSource": {"kind": "a" * 700_000, "name": "b" * 700_000}}},
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_hostile_claim_costs_a_pass_little(name: str) -> None:
    claim = msgspec.convert({"metadata": metadata(), **CLAIMS[name]}, PersistentVolumeClaim)
    storage_class = msgspec.convert(
        {"metadata": {"name": "fast"}, "provisioner": "local.csi.pileus.dev"}, StorageClass
    )
    seen = VolumeObservation(name="pvc-u1", date=NOW, claim=claim, storage_class=storage_class)

    def pass_over_claim(cost: Cost) -> None:
        steps = cost.of("plan", volume_plan, VolumeRules("local.csi.pileus.dev", "cluster"), seen)
        report(cost, steps)

    check_cost(pass_over_claim)


@pytest.mark.parametrize("kind", VALUES_OF_USERS)
def test_a_text_of_a_user_costs_a_report_little(kind: str) -> None:
    check_cost(lambda cost: report(cost, VALUES_OF_USERS[kind]))
