"""Nodes with pod ranges, and routes, to test with."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pileus.cloud.model import Address, AddressType, NodeName, Route
from pileus.controllers.route.ownership import DeletedNode, Rules
from pileus.controllers.route.plan import (
    CreateRoutes,
    DeleteRoutes,
    KeepRoutes,
    Observation,
    ReportNode,
    Step,
    plan,
)
from pileus.controllers.route.record import NOTHING, Recorded
from pileus.controllers.route.settings import Ownership
from pileus.kube.model.core_v1 import (
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    Taint,
)
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
    provider_id: str = "",
    taints: Sequence[Taint] = (),
) -> Node:
    """`age`: seconds; the older, the more."""
    return Node(
        metadata=ObjectMeta(
            name=name, uid=uid or f"uid-{name}", creation_timestamp=START - timedelta(seconds=age)
        ),
        spec=NodeSpec(
            pod_cidr=ranges[0] if ranges else None,
            pod_cidrs=ranges or None,
            provider_id=provider_id or None,
            taints=tuple(taints) or None,
        ),
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


def deleted(name: str, text: str, machine: str = "") -> DeletedNode:
    return DeletedNode(name, f"uid-{name}", parse_range(text), machine)


def places(routes: Iterable[Route]) -> list[tuple[str, str | None]]:
    return sorted((each.destination, each.target) for each in routes)


@dataclass(frozen=True)
class Made:
    """The steps of a plan, by their kind."""

    steps: tuple[Step, ...]

    @property
    def delete(self) -> tuple[Route, ...]:
        return self._routes(DeleteRoutes)

    @property
    def kept(self) -> tuple[Route, ...]:
        return self._routes(KeepRoutes)

    @property
    def create(self) -> tuple[Route, ...]:
        return self._routes(CreateRoutes)

    @property
    def reports(self) -> tuple[ReportNode, ...]:
        return tuple(each for each in self.steps if isinstance(each, ReportNode))

    def _routes(
        self, kind: type[DeleteRoutes] | type[KeepRoutes] | type[CreateRoutes]
    ) -> tuple[Route, ...]:
        chosen = (each for each in self.steps if isinstance(each, kind))
        return tuple(route for each in chosen for route in each.routes)


def planned(
    nodes: Sequence[Node],
    listed: Sequence[Route],
    recorded: Recorded = NOTHING,
    rules: Rules = RULES,
) -> Made:
    observed = Observation(nodes=tuple(nodes), routes=tuple(listed), recorded=recorded, date=START)
    return Made(plan(observed, rules))
