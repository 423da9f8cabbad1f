"""The largest hostile objects that the API server stores cost a pass little CPU time.

The loop serves all objects, the lease and the probes: one object may take 50 ms of it. Each pure
step of a pass is measured in CPU time of the process, not by the clock, with room for a slow
machine. The attacks that this found took seconds or hours.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest

from pileus.cloud.balancer import Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.model import Address, Instance, InstanceId
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
from pileus.objects.nodes import reference
from pileus.objects.ownership import owner_by
from pileus.providers.openstack.annotations import ANNOTATIONS, OPTIONS
from pileus.providers.openstack.desired import Desired, Setup, desire
from pileus.runtime.events import Correlator, Occurrence
from pileus.telemetry.klog import JsonFormat, TextFormat
from pileus.telemetry.log import VALUES
from pileus.telemetry.passes import clean

T = TypeVar("T")
MOST = 0.05
"""Seconds of CPU time for one pass."""
ROOM = 5
"""How much slower a busy machine may be, with a profiler or coverage."""
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
        began = time.process_time()
        try:
            return function(*arguments)
        except CloudError as error:
            return error
        finally:
            self.seconds[step] = self.seconds.get(step, 0) + time.process_time() - began

    def check(self) -> None:
        assert sum(self.seconds.values()) < MOST * ROOM, self.seconds


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


def pass_over(service: Service, cost: Cost) -> None:
    seen = Observation(service=service, time=0.0, date=NOW)
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
            check_balancer(cost, step.desired)


def check_balancer(cost: Cost, wish: Wish) -> None:
    cost.of("fingerprint", lambda: wish.fingerprint)
    cost.of("equal", lambda: (hash(wish), wish == replace(wish)))
    wanted = cost.of("desire", desired, wish)
    if isinstance(wanted, CloudError):
        report(cost, wanted)
    else:
        for notice in wanted.notices:
            report(cost, notice.message)


def desired(wish: Wish) -> Desired:
    assert wish.spec is not None
    found = desire(wish, wish.spec, Setup())
    assert len(found.ports) == len(wish.spec.listeners)
    assert found.request is not None
    return found


@pytest.mark.parametrize("name", [*(each.name for each in OPTIONS), *CORE_NAMES])
def test_a_hostile_annotation_costs_a_pass_little(name: str) -> None:
    for value in VALUES_OF_USERS.values():
        cost = Cost()

        pass_over(msgspec.convert(service({name: value}), Service), cost)

        cost.check()


@pytest.mark.parametrize("name", SERVICES)
def test_a_hostile_service_costs_a_pass_little(name: str) -> None:
    cost = Cost()

    pass_over(msgspec.convert(SERVICES[name], Service), cost)

    cost.check()


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
    cost, node = Cost(), msgspec.convert(NODES[name], Node)
    instance = Instance(
        id=InstanceId("i"), provider_id="a://i", addresses=(Address("InternalIP", "10.0.0.1"),)
    )

    cost.of("reference", reference, node)
    cost.of("worth", is_worth_a_pass, node, msgspec.convert(NODES["labels"], Node))
    facts = examine(instance)
    cost.of(
        "plan", node_plan, NodeObservation(node=node, whose=owner_by("a", None), answer=facts), NOW
    )

    cost.check()


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
    cost = Cost()
    claim = msgspec.convert({"metadata": metadata(), **CLAIMS[name]}, PersistentVolumeClaim)
    storage_class = msgspec.convert(
        {"metadata": {"name": "fast"}, "provisioner": "local.csi.pileus.dev"}, StorageClass
    )
    seen = VolumeObservation(name="pvc-u1", date=NOW, claim=claim, storage_class=storage_class)

    steps = cost.of("plan", volume_plan, VolumeRules("local.csi.pileus.dev", "cluster"), seen)
    report(cost, steps)

    cost.check()


@pytest.mark.parametrize("kind", VALUES_OF_USERS)
def test_a_text_of_a_user_costs_a_report_little(kind: str) -> None:
    cost = Cost()

    report(cost, VALUES_OF_USERS[kind])

    cost.check()
