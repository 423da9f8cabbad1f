"""The explanation of a Service: its desired and its actual load balancer."""

from collections.abc import Iterator, Sequence

from pileus.app.cluster_id import ClusterIdUnknown
from pileus.app.context import ManagerContext
from pileus.app.errors import Fatal
from pileus.app.explain.explanation import Explanation, Message, newest_first
from pileus.app.explain.node import Findings, troubles_now
from pileus.app.plan import Plan
from pileus.app.provider_access import View
from pileus.cloud.balancer import Balancer, BalancerSpec
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.model import NodeRef
from pileus.controllers.service.annotations import (
    MANAGE,
    Classes,
    InvalidAnnotation,
    MemberScope,
    is_load_balancer,
    member_scope,
    mode_of,
)
from pileus.controllers.service.descriptor import served_classes
from pileus.controllers.service.desired import Desires, InvalidService, desired
from pileus.controllers.service.events import about_service
from pileus.controllers.service.members import LEAVING, MemberRules, is_excluded
from pileus.controllers.service.observation import BalancerOperations
from pileus.controllers.service.settings import ServiceSettings
from pileus.controllers.service.status import (
    condition_of,
    has_finalizer,
    published_ingress,
    served_class,
)
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, Service
from pileus.objects.events import shortened
from pileus.objects.nodes import reference, taints_of


@dataclass(frozen=True, slots=True)
class Side:
    """The desired load balancer of a Service, and the one in the cloud."""

    desired: BalancerSpec | InvalidService | None
    actual: Balancer | CloudError | None


def side_without_cloud(
    context: ManagerContext, service: Service, nodes: Sequence[Node], problem: str
) -> Side:
    """Returns the desired load balancer, and why the cloud cannot be asked for the actual one."""
    return Side(desired(service, _members(context, service, nodes)), Unavailable(problem))


async def cloud_side(context: ManagerContext, service: Service, nodes: Sequence[Node]) -> Side:
    """Returns the desired and the actual load balancer. Reads the cloud once.

    Call it when the informer of Services is synced: a load balancer that serves another Service
    is not reported as this one's.
    """
    if context.cloud.balancers is None:
        return Side(None, None)
    desires = Desires(
        cluster=await cluster_id_of(context),
        annotations=context.cloud.annotations,
        abilities=context.cloud.abilities,
        trusted=frozenset(context.config[ServiceSettings].trusted_namespaces),
    )
    wish = desires.wish(service, _members(context, service, nodes))
    wanted = wish if isinstance(wish, InvalidService) else wish.spec
    if isinstance(wish, InvalidService) or not _classes(context).serve(service):
        wish = desires.none(service)
    try:
        operations = BalancerOperations(
            context.cloud.balancers, View(context.informers).service, context.cloud.annotations
        )
        observed = await operations.check(wish, full=True)
    except CloudError as error:
        return Side(wanted, error)
    return Side(wanted, observed.balancer)


def _members(
    context: ManagerContext, service: Service, nodes: Sequence[Node]
) -> frozenset[NodeRef]:
    rules, scope = _rules(context), member_scope(service)
    return frozenset(
        reference(each)
        for each in nodes
        if rules.is_member(each, scope) and not rules.is_unchecked(each)
    )


async def cluster_id_of(context: ManagerContext) -> str:
    """Returns the cluster's ID. Raises Fatal if it is unknown."""
    try:
        return await context.cluster_identity.find(wait=False)
    except ClusterIdUnknown as error:
        raise Fatal(str(error)) from error


def serves(context: ManagerContext, service: Service) -> bool:
    """Whether the cloud of the context serves the Service."""
    return _classes(context).serve(service)


def served_before(context: ManagerContext, service: Service) -> bool:
    """Whether the cloud of the context served the Service last."""
    recorded = served_class(service)
    return recorded is not None and _classes(context).has(recorded)


def _classes(context: ManagerContext) -> Classes:
    return served_classes(context.scope, context.config[ServiceSettings])


def explain_service(
    context: ManagerContext, service: Service, nodes: Sequence[Node], side: Side, around: Findings
) -> Explanation:
    classes = _classes(context)
    served = classes.serve(service)
    leaving = service.metadata.deletion_timestamp is not None
    changes = tuple(change for _, change in around.plan.changes)
    return Explanation(
        about=about_service(service),
        created=service.metadata.creation_timestamp,
        is_ours=served or bool(changes) or has_finalizer(service),
        desired=(
            tuple(_desired(service, nodes, side, context, around.plan))
            if served
            else (_unserved(service),)
        ),
        actual=tuple(_actual(service, side, around.plan)),
        changes=changes,
        waits=("its deletion, which has begun",) if leaving else (),
        messages=newest_first((
            *troubles_now(around.plan),
            *_condition(service),
            *around.warnings,
        )),
        owner=tuple(_owner(service, classes, context)),
        leader=around.leader,
    )


def _unserved(service: Service) -> str:
    if not is_load_balancer(service):
        kind = (service.spec and service.spec.type) or "ClusterIP"
        return f"no load balancer: its type is {kind}"
    named = service.spec.load_balancer_class if service.spec else None
    return f"a load balancer of another controller: its class is {named or 'none'}"


def _desired(
    service: Service, nodes: Sequence[Node], side: Side, context: ManagerContext, plan: Plan
) -> Iterator[str]:
    if service.metadata.deletion_timestamp is not None:
        yield "no load balancer: the Service is being deleted"
        return
    if isinstance(side.desired, InvalidService):
        yield f"not valid{_unless_reported(str(side.desired), plan)}"
        return
    if side.desired is None:
        yield "a load balancer, but the cloud provider does not support load balancers"
        return
    ports = sorted(side.desired.listeners, key=lambda each: (each.port, each.transport))
    listed = ", ".join(
        f"{each.port}/{each.transport} → node port {each.node_port}" for each in ports
    )
    yield f"load balancer on {listed}"
    names = sorted(each.name for each in side.desired.members)
    yield f"members: {', '.join(names) or 'none'} ({len(names)} of {len(nodes)} nodes)"
    rules = _rules(context)
    for node in nodes:
        if node.metadata.name not in names:
            why = _why_not(node, rules, member_scope(service))
            yield f"not a member: {node.metadata.name} ({why})"
    if side.desired.source_ranges:
        yield f"source ranges: {', '.join(sorted(side.desired.source_ranges))}"
    if side.desired.requested_address:
        yield f"address {side.desired.requested_address}"


def _rules(context: ManagerContext) -> MemberRules:
    drains = context.config[ServiceSettings].drain_cordoned
    return MemberRules(
        whose=context.scope.whose,
        drain_cordoned=drains,
        checks_claims=context.scope.cloud.instances is not None,
    )


def _why_not(node: Node, rules: MemberRules, scope: MemberScope) -> str:
    name, spec = node.metadata.name, node.spec
    reasons = (
        (scope is MemberScope.CLOUD and rules.is_foreign(node), "a machine of another cloud"),
        (node.metadata.deletion_timestamp, "being deleted"),
        (is_excluded(node), "excluded by its label"),
        (
            any(taint.key == LEAVING for taint in taints_of(node)),
            "about to be removed by the autoscaler",
        ),
        (rules.drain_cordoned and spec is not None and spec.unschedulable, "cordoned"),
        (
            rules.is_unchecked(node),
            f"not accepted as the machine with its provider ID; see pileus explain node {name}",
        ),
    )
    usual = "without a provider ID, which this cloud needs"
    return next((text for applies, text in reasons if applies), usual)


def _unless_reported(text: str, plan: Plan) -> str:
    """Returns the text, or a reference to the messages if the plan reports it."""
    is_reported = any(text in trouble.message for _, trouble in plan.troubles)
    return ": see messages" if is_reported else f": {text}"


def _actual(service: Service, side: Side, plan: Plan) -> Iterator[str]:
    published = ", ".join(each.ip or each.hostname or "" for each in published_ingress(service))
    in_cloud = ""
    match side.actual:
        case CloudError() as error:
            yield f"load balancer unknown{_unless_reported(str(error), plan)}"
        case None:
            yield "no load balancer in the cloud"
        case Balancer() as balancer:
            in_cloud = ", ".join(each.ip or each.hostname for each in balancer.ingress)
            yield from balancer_lines(balancer)
    if in_cloud and in_cloud == published:
        yield f"address {in_cloud}, published on the Service"
        return
    if in_cloud:
        yield f"address in the cloud: {in_cloud}"
    yield f"address on the Service: {published or 'none'}"


def balancer_lines(balancer: Balancer) -> Iterator[str]:
    """Yields the state of a load balancer, and what its provider reports, without secrets."""
    members = "" if balancer.members is None else f", {balancer.members} members"
    problem = f": {shortened(balancer.problem)}" if balancer.problem else ""
    yield f"load balancer {balancer.id}: {balancer.state}{members}{problem}"
    yield from (f"{each.reason}: {shortened(each.message)}" for each in balancer.notices)


def _condition(service: Service) -> Iterator[Message]:
    """Yields the message of the condition, unless the condition is True."""
    found = condition_of(service)
    if found is not None and found.status != "True":
        yield Message(
            source=f"condition {found.type} {found.status}",
            reason=found.reason,
            message=found.message,
            at=found.last_transition_time,
            is_now=found.reason != "Pending",
        )


def _owner(service: Service, classes: Classes, context: ManagerContext) -> Iterator[str]:
    if is_load_balancer(service):
        named = service.spec.load_balancer_class if service.spec else None
        ours = "served here" if classes.serve(service) else "served by another controller"
        yield f"class: {named or 'none'} ({ours})"
    elif not has_finalizer(service):
        return
    if classes.serve(service) and not context.scope.is_only:
        yield f"cloud {context.scope.name}"
    try:
        yield f"managed: {mode_of(service)} ({MANAGE})"
    except InvalidAnnotation:
        yield "managed: unknown, an annotation is not valid"
    cluster = context.cluster_identity.known or "unknown"
    yield f"tag in the cloud: cluster {cluster}, owner {service.metadata.uid}"
    yield f"finalizer: {'present' if has_finalizer(service) else 'absent'}"
