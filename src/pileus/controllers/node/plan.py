"""The steps of a pass over one node. Pure: no I/O, no clock.

A new node needs at most two writes. The status is written first and the taint is removed last: if
the process stops in between, the node is still tainted and the next pass completes it.

    plan          a pass: initialize a new node, or complete an initialized one
    plan_refresh  a periodic refresh of an initialized node from the cloud's answer
    plan_report   report on a node why it cannot be initialized
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import Enum, auto

from msgspec.structs import replace

from pileus.cloud.errors import CloudError, NotFound
from pileus.controllers.node.addresses import check_node_ip, desired_addresses, same_addresses
from pileus.controllers.node.events import (
    PATIENCE,
    is_lasting,
    message_of,
    reason_of,
    skipped,
)
from pileus.controllers.node.labels import completed, differing, missing
from pileus.controllers.node.observation import Answer, Facts, Observation, refused
from pileus.controllers.node.patches import ObjectWrite, StatusWrite, Write, expected
from pileus.dataclass import dataclass
from pileus.dataclass import replace as changed
from pileus.kube.model.core_v1 import Node, NodeAddress, NodeCondition
from pileus.objects.conditions import Explanation, problem_condition, solved_condition
from pileus.objects.node_ips import NodeIpRefused
from pileus.objects.nodes import (
    addresses_of,
    condition_of,
    is_uninitialized,
)
from pileus.objects.ownership import Ownership

CONDITION = "CloudProviderUninitialized"
"""True while initialization fails, for the reason given; like the other conditions, bad if true."""
SETTLED = Explanation("NodeInitialized", "the node has been initialized from the cloud's answer")
NOT_OWNED = "ProviderIDNotOwned"


class Rule(Enum):
    """What decides on a write. After a conflict the same rule decides again from a fresh node."""

    INITIAL_STATUS = auto()
    INITIAL_OBJECT = auto()
    """Removes the taint."""
    CLEARED_CONDITION = auto()
    STABLE_LABELS = auto()
    REFUSED = auto()
    """Sets the taint again."""
    REFRESHED_LABELS = auto()
    REFRESHED_ADDRESSES = auto()


@dataclass(frozen=True, slots=True)
class Apply:
    """Make one write."""

    rule: Rule
    write: Write


@dataclass(frozen=True, slots=True)
class Finish:
    """Record that this process initialized the node: event, metrics and log."""

    provider_id: str


@dataclass(frozen=True, slots=True)
class Warn:
    """Record a warning event; repeated at most once an hour."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """Report on the node, by event and condition, why it cannot be initialized."""

    reason: str
    message: str
    write: StatusWrite | None
    """None: the condition is up to date."""
    wait: float
    """Seconds that the failure has to last before it is reported; 0: it is reported now."""


@dataclass(frozen=True, slots=True)
class Retry:
    """End the pass with this error. The queue retries it."""

    error: CloudError


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave the node unchanged in this refresh."""

    error: CloudError
    warns: bool = False
    """Whether the node gets a warning: a change of the node can fix it."""


Step = Apply | Finish | Warn | Report | Retry | Skip
Steps = tuple[Step, ...]


def plan(seen: Observation, now: datetime) -> Steps:
    """Returns the steps of a pass. Empty: the node matches the desired state, or is not managed."""
    if not is_managed(seen):
        return ()
    if not is_uninitialized(seen.node):
        settled = (Rule.CLEARED_CONDITION, Rule.STABLE_LABELS)
        return _claimed(seen, now) if seen.is_claim else _applied(seen, settled, now)
    if seen.answer is None:
        return ()
    try:
        return _initialization(seen, _accepted(seen, seen.answer), now)
    except CloudError as error:
        return (*plan_report(seen, error, now), Retry(error))


def _accepted(seen: Observation, answer: Answer) -> Facts:
    """Raises the cloud's error, or `IdentityRefused`."""
    if isinstance(answer, CloudError):
        raise answer
    if error := refused(seen):
        raise error
    return answer


def _claimed(seen: Observation, now: datetime) -> Steps:
    """Returns the steps for a node that came initialized: only the taint is set, if it is refused.

    What the cloud does not have is left to the lifecycle controller.
    """
    if isinstance(seen.answer, CloudError):
        return () if isinstance(seen.answer, NotFound) else (Retry(seen.answer),)
    return _applied(seen, (Rule.REFUSED, Rule.CLEARED_CONDITION, Rule.STABLE_LABELS), now)


def plan_refresh(seen: Observation, now: datetime, *, sync_labels: bool) -> Steps:
    """Returns the steps that update an initialized node from the cloud's answer."""
    if not is_managed(seen) or not is_refreshable(seen.node) or seen.answer is None:
        return ()
    if isinstance(seen.answer, CloudError):
        return (Skip(seen.answer),)
    labels = (Rule.REFRESHED_LABELS,) if sync_labels else ()
    # Unknown address types are reported once, when the node is initialized.
    warnings = _warnings(changed(seen.answer, unknown_addresses=()))
    try:
        return (*warnings, *_applied(seen, (*labels, Rule.REFRESHED_ADDRESSES), now))
    except NodeIpRefused as error:
        return (*warnings, Skip(error, warns=True))


def plan_report(seen: Observation, error: Exception, now: datetime) -> Steps:
    """Returns the report of an error that keeps the node from being initialized."""
    reason, message = reason_of(error), message_of(error)
    return (
        Report(
            reason,
            message,
            stuck_status(seen.node, reason, message, now),
            wait=0.0 if is_lasting(error) else max(PATIENCE - seen.failing_for, 0.0),
        ),
    )


def decide(rule: Rule, seen: Observation, now: datetime) -> Write | None:
    """Returns the write that the rule asks for; None if there is nothing to write.

    Raises `NodeIpRefused` if the address that the kubelet asks for is not the cloud's.
    """
    return _DECISIONS[rule](seen, now) if is_managed(seen) else None


def is_managed(seen: Observation) -> bool:
    """Whether the node may be looked up and written: it may be this cloud's and is not deleted."""
    if seen.node.metadata.deletion_timestamp:
        return False
    return seen.whose(seen.node) is not Ownership.FOREIGN


def is_refreshable(node: Node) -> bool:
    """Whether the node is refreshed: it is initialized, not deleted, and has a name and status."""
    odd = not node.metadata.name or node.status is None
    return not odd and not node.metadata.deletion_timestamp and not is_uninitialized(node)


def after(seen: Observation, steps: Iterable[Step]) -> Observation:
    """Returns what is observed after the steps if no other process writes in between."""
    for step in steps:
        if isinstance(step, Apply):
            seen = changed(seen, node=expected(seen.node, step.write))
    return seen


def is_worth_a_pass(old: Node, new: Node) -> bool:
    """Whether a pass over `new` may have steps that one over `old` would not have.

    Not for a heartbeat, and not for our condition on a node that is not initialized: reporting a
    failure must not cause another pass.
    """
    return _relevant(old) != _relevant(new)


def initial_status(node: Node, facts: Facts, now: datetime) -> StatusWrite | None:
    """The first write to a new node; None if its status is up to date.

    The condition is turned off in the same request, unless the node has no addresses at all: no
    patch can merge conditions and set a new list safely, so another write follows.

    Raises `NodeIpRefused`.
    """
    check_node_ip(node, facts.addresses)
    addresses = _changed_addresses(node, facts)
    apart = addresses is not None and not addresses_of(node)
    return _status(addresses, None if apart else cleared_condition(node, now))


def initial_object(node: Node, facts: Facts) -> ObjectWrite | None:
    """The second write to a new node; None if another process has initialized it."""
    if not is_uninitialized(node):
        return None
    labels = node.metadata.labels or {}
    has_id = bool(node.spec and node.spec.provider_id)
    return ObjectWrite(
        provider_id="" if has_id else facts.provider_id,
        labels=differing(labels, facts.standard_labels) | missing(labels, facts.additional_labels),
        untaint=True,
    )


def addresses_or_object(node: Node, facts: Facts) -> Write | None:
    """The second write to a new node, or once more its addresses if they were changed meanwhile.

    Only a node with the addresses of its machine loses the taint.
    """
    addresses = _changed_addresses(node, facts) if is_uninitialized(node) else None
    return initial_object(node, facts) if addresses is None else StatusWrite(addresses)


def refused_object(seen: Observation) -> ObjectWrite | None:
    """Sets the taint of a new node on one that is not accepted as that of its machine."""
    is_tainted = is_uninitialized(seen.node)
    return ObjectWrite(taint=True) if not is_tainted and refused(seen) else None


def settled_status(node: Node, now: datetime) -> StatusWrite | None:
    """Turns our condition off on an initialized node."""
    return _status(None, cleared_condition(node, now))


def settled_object(node: Node) -> ObjectWrite | None:
    """Adds the stable labels of which an initialized node has only the deprecated twins."""
    return _labels(completed(node.metadata.labels or {}))


def refreshed_status(node: Node, facts: Facts) -> StatusWrite | None:
    """Updates an initialized node's addresses from the cloud.

    No address is removed because of an answer that is invalid in part.

    Raises `NodeIpRefused`.
    """
    if facts.bad_addresses:
        return None
    return _status(_changed_addresses(node, facts), None)


def refreshed_object(node: Node, facts: Facts) -> ObjectWrite | None:
    """Updates an initialized node's labels from the cloud. No label is removed."""
    desired = {**facts.additional_labels, **facts.standard_labels}
    return _labels(differing(node.metadata.labels or {}, desired))


def stuck_status(node: Node, reason: str, message: str, now: datetime) -> StatusWrite | None:
    """Turns our condition on; None if it is on for this reason already."""
    return _status(None, problem_condition(node, CONDITION, Explanation(reason, message), now))


def cleared_condition(node: Node, now: datetime) -> NodeCondition | None:
    """Returns our condition, turned off; None if it is off or was never on."""
    return solved_condition(node, CONDITION, SETTLED, now)


def age(node: Node, now: datetime) -> float | None:
    """Returns the seconds since the node was created; None if it has no creation timestamp."""
    born = node.metadata.creation_timestamp
    return None if born is None else max((now - born).total_seconds(), 0.0)


def _on_facts(
    rule: Callable[[Node, Facts, datetime], Write | None],
) -> Callable[[Observation, datetime], Write | None]:
    def decision(seen: Observation, now: datetime) -> Write | None:
        return rule(seen.node, seen.answer, now) if isinstance(seen.answer, Facts) else None

    return decision


_DECISIONS: Mapping[Rule, Callable[[Observation, datetime], Write | None]] = {
    Rule.INITIAL_STATUS: _on_facts(initial_status),
    Rule.INITIAL_OBJECT: _on_facts(lambda node, facts, _: addresses_or_object(node, facts)),
    Rule.REFUSED: lambda seen, _: refused_object(seen),
    Rule.CLEARED_CONDITION: lambda seen, now: settled_status(seen.node, now),
    Rule.STABLE_LABELS: lambda seen, _: settled_object(seen.node),
    Rule.REFRESHED_LABELS: _on_facts(lambda node, facts, _: refreshed_object(node, facts)),
    Rule.REFRESHED_ADDRESSES: _on_facts(lambda node, facts, _: refreshed_status(node, facts)),
}


def _initialization(seen: Observation, facts: Facts, now: datetime) -> Steps:
    rules = (Rule.INITIAL_STATUS, Rule.INITIAL_OBJECT, Rule.CLEARED_CONDITION)
    applied = _applied(seen, rules, now)
    left = after(seen, applied).node
    owned = () if seen.whose(left) is not Ownership.FOREIGN else (_not_owned(facts.provider_id),)
    return (*applied, Finish(facts.provider_id), *_warnings(facts), *owned)


def _applied(seen: Observation, rules: Iterable[Rule], now: datetime) -> tuple[Apply, ...]:
    """Returns one write for each rule that asks for one, each decided after the one before it."""
    steps: list[Apply] = []
    for rule in rules:
        write = decide(rule, seen, now)
        if write is not None:
            steps.append(Apply(rule, write))
            seen = changed(seen, node=expected(seen.node, write))
    return tuple(steps)


def _warnings(facts: Facts) -> tuple[Warn, ...]:
    return tuple(Warn(reason, message) for reason, message in skipped(facts))


def _not_owned(provider_id: str) -> Warn:
    return Warn(
        NOT_OWNED,
        f"The cloud provider gave this node the provider ID {provider_id}, but does not declare "
        "its scheme, so the node is ignored from now on. Fix the provider: declare the scheme in "
        "Cloud.owns, or in provider_id_schemes if it is ported",
    )


def _relevant(node: Node) -> tuple[Node, NodeCondition | None]:
    """Returns the node without the fields that no decision depends on."""
    condition = None if is_uninitialized(node) else condition_of(node, CONDITION)
    metadata = replace(node.metadata, resource_version="")
    status = node.status and replace(node.status, conditions=None)
    return replace(node, metadata=metadata, status=status), condition


def _changed_addresses(node: Node, facts: Facts) -> tuple[NodeAddress, ...] | None:
    desired = desired_addresses(node, facts.addresses)
    return None if same_addresses(addresses_of(node), desired) else desired


def _status(
    addresses: tuple[NodeAddress, ...] | None, condition: NodeCondition | None
) -> StatusWrite | None:
    return StatusWrite(addresses, condition) if addresses is not None or condition else None


def _labels(labels: Mapping[str, str]) -> ObjectWrite | None:
    return ObjectWrite(labels=labels) if labels else None
