"""Nodes with pod ranges, and routes, to test with."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pileus.cloud.model import Address, AddressType, NodeName, Route
from pileus.controllers.route.ownership import Departed, Ownership, Rules
from pileus.controllers.route.plan import Memory, Plan, plan
from pileus.kube.model.core_v1 import Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.ranges import parse_range, parse_ranges

START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = Rules(cluster="blue", ranges=parse_ranges("10.0.0.0/8,fd00::/16"))


def node(
    name: str = "n1",
    *ranges: str,
    uid: str = "",
    age: int = 0,
    addresses: Sequence[str] = ("192.168.0.1",),
    conditions: Sequence[NodeCondition] = (),
) -> Node:
    """`age`: seconds; the older, the more."""
    return Node(
        metadata=ObjectMeta(
            name=name, uid=uid or f"uid-{name}", creation_timestamp=START - timedelta(seconds=age)
        ),
        spec=NodeSpec(pod_cidr=ranges[0] if ranges else None, pod_cidrs=ranges or None),
        status=NodeStatus(
            addresses=tuple(NodeAddress(type="InternalIP", address=ip) for ip in addresses),
            conditions=tuple(conditions),
        ),
    )


def route(destination: str, target: str | None, **more: object) -> Route:
    return Route(
        destination=destination,
        target=None if target is None else NodeName(target),
        **more,  # type: ignore[arg-type]
    )


def internal(ip: str) -> Address:
    return Address(AddressType.INTERNAL_IP, ip)


WIDE = replace(RULES, ownership=Ownership.CLUSTER_CIDR)
NOTHING = Memory()


def departed(name: str, text: str) -> Departed:
    return Departed(name, f"uid-{name}", parse_range(text))


def places(routes: Iterable[Route]) -> list[tuple[str, str | None]]:
    return sorted((each.destination, each.target) for each in routes)


def planned(
    nodes: Sequence[Node], listed: Sequence[Route], memory: Memory = NOTHING, rules: Rules = RULES
) -> Plan:
    return plan(nodes, listed, memory, rules)
