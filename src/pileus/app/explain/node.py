"""The explanation of a node: its machine in the cloud, and its state in the cluster."""

from collections.abc import Iterable, Iterator

from pileus.app.context import ManagerContext
from pileus.app.explain.explanation import Explanation, Leader, Message, newest_first
from pileus.app.plan import Plan
from pileus.cloud.errors import CloudError
from pileus.cloud.model import Absent, Address, Failure, Found, Instance, NodeName
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node, NodeAddress
from pileus.objects.cloud_scope import CloudScope
from pileus.objects.nodes import (
    UNINITIALIZED,
    about_node,
    addresses_of,
    condition_of,
    is_uninitialized,
    provider_id_of,
    reference,
    taints_of,
)
from pileus.objects.ownership import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Plan, events and leader: the parts of an explanation that nodes and Services share."""

    plan: Plan
    warnings: tuple[Message, ...]
    leader: Leader | None


async def machine_of(context: ManagerContext, node: Node) -> Found | None:
    """Returns the cloud's answer about the node's machine; None if there is none."""
    if context.cloud.instances is None or owned_by(node, context.scope) is False:
        return None
    try:
        found = await context.cloud.instances.find([reference(node)], fresh=False)
    except CloudError as error:
        return Failure(error)
    return found.get(NodeName(node.metadata.name))


def explain_node(
    context: ManagerContext, node: Node, found: Found | None, around: Findings
) -> Explanation:
    leaving = node.metadata.deletion_timestamp is not None
    return Explanation(
        about=about_node(node),
        created=node.metadata.creation_timestamp,
        is_ours=owned_by(node, context.scope) is not False,
        desired=tuple(_desired(node, found, around.plan, context.cloud.name)),
        actual=tuple(_actual(node, around.plan)),
        changes=tuple(change for _, change in around.plan.changes),
        waits=("its deletion, which has begun",) if leaving else (),
        messages=newest_first((
            *troubles_now(around.plan),
            *_missing(node, found, around.plan),
            *around.warnings,
        )),
        owner=(_owner(node, context.scope),),
        leader=around.leader,
    )


def _desired(node: Node, found: Found | None, plan: Plan, cloud: str) -> Iterator[str]:
    """Yields the machine, and its facts that differ from the node and are in no planned change."""
    match found:
        case Instance():
            where = "/".join(filter(None, (found.region, found.zone)))
            place = f" in {where}" if where else ""
            kind = f", type {found.type}" if found.type else ""
            yield f"machine {found.id}{place}{kind}: {found.state}"
            if found.provider_id != provider_id_of(node) and not _changes(plan, "providerID"):
                yield f"provider ID {found.provider_id or 'none'}"
            addresses = _listed(found.addresses)
            if addresses != _listed(addresses_of(node)) and not _changes(plan, "addresses"):
                yield f"addresses: {addresses or 'none'}"
        case Absent(evidence):
            yield f"no machine in cloud {cloud}: {evidence}"
        case Failure(error):
            yield f"unknown, cloud {cloud} did not answer: {error}"
        case None:
            yield f"unknown, cloud {cloud} has no answer for this node"


def _actual(node: Node, plan: Plan) -> Iterator[str]:
    ready = condition_of(node, "Ready")
    state = {"True": "ready", "False": "not ready"}.get(ready.status if ready else "", "unknown")
    why = f" ({ready.reason})" if ready and ready.status != "True" and ready.reason else ""
    yield f"{state}{why}, {'not initialized' if is_uninitialized(node) else 'initialized'}"
    if provider_id_of(node) or not _changes(plan, "providerID"):
        yield f"provider ID {provider_id_of(node) or 'none'}"
    if not _changes(plan, "addresses"):
        yield f"addresses: {_listed(addresses_of(node)) or 'none'}"
    taints = [taint for taint in taints_of(node) if taint.key != UNINITIALIZED]
    if taints:
        yield f"taints: {', '.join(f'{taint.key}:{taint.effect}' for taint in taints)}"


def _listed(addresses: Iterable[Address | NodeAddress]) -> str:
    return ", ".join(f"{each.type} {each.address}" for each in addresses)


def _changes(plan: Plan, field: str) -> bool:
    """Whether a planned change shows the field before and after."""
    return any(f".{field}: " in detail for _, change in plan.changes for detail in change.details)


def _owner(node: Node, scope: CloudScope) -> str:
    match owned_by(node, scope):
        case True:
            return f"cloud {scope.name}: it owns the provider ID"
        case False:
            return f"another cloud: {scope.name} does not own {provider_id_of(node)}"
        case None:
            return f"cloud {scope.name}, by lookup: the node has no provider ID"


def owned_by(node: Node, scope: CloudScope) -> bool | None:
    """Whether the node belongs to the cloud; None if only a lookup can tell."""
    whose = scope.whose(node)
    return None if whose is Ownership.UNPROVEN else whose is Ownership.OURS


def _missing(node: Node, found: Found | None, plan: Plan) -> Iterator[Message]:
    """Yields a message if the machine does not exist and no controller plans anything."""
    if isinstance(found, Absent) and not plan.lines and not is_uninitialized(node):
        yield Message(
            source="now",
            reason="InstanceNotFound",
            message=f"the cloud has no such machine: {found.evidence}",
            is_now=True,
        )


def troubles_now(plan: Plan) -> Iterable[Message]:
    """Returns what blocks the object now."""
    for _, trouble in plan.troubles:
        yield Message(source="now", reason=trouble.reason, message=trouble.message, is_now=True)
    for controller, why in plan.failures.items():
        yield Message(source=controller, reason="NoPlan", message=why, is_now=True)
