"""Checks of nodes: taints that stay, kubelets without the flag, machines of others. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

from pileus.app.explain.advice import ADVICE, OTHERWISE, command_for
from pileus.cloud.finding import Finding
from pileus.controllers.node.plan import CONDITION
from pileus.doctor.check import Verdict, counted, error, listed, titled, warning
from pileus.doctor.manager_checks import is_held, start
from pileus.doctor.observation import Observation, Unread, known
from pileus.doctor.records import Event, Node
from pileus.objects.nodes import (
    UNINITIALIZED,
    about_node,
    condition_of,
    is_uninitialized,
    provider_id_of,
)

SLOW_START = timedelta(minutes=2)
"""The age at which a new node should be initialized."""
EMBEDDED = {"k3s": "K3s", "rke2": "RKE2", "rancher": "RKE2"}
"""Distributions whose own cloud controller manager sets provider IDs, by their scheme."""
FLAG_FIX = (
    "set the kubelet flag --cloud-provider=external on these machines and restart the kubelet, "
    "then: kubectl taint nodes {names} {taint}=true:NoSchedule"
)


def nodes(seen: Observation) -> Verdict:
    """Whether each node was initialized, and if not, why."""
    found = known(seen.nodes)
    old = [node for node in found if _is_old(node, seen)]
    waiting = sum(map(is_uninitialized, found))
    state = f"{waiting} not initialized yet" if waiting else "all initialized"
    return Verdict(
        f"{counted(len(found), 'node')}, {state}",
        (*_tainted(seen, old), *_without_flag(old), *_foreign(seen, found)),
    )


def _is_old(node: Node, seen: Observation) -> bool:
    made = node.metadata.creation_timestamp
    return made is None or seen.server_now - made > SLOW_START


def _tainted(seen: Observation, old: Iterable[Node]) -> Iterator[Finding]:
    by_cause: dict[tuple[str, str], list[str]] = {}
    for node in filter(is_uninitialized, old):
        by_cause.setdefault(_cause(seen, node), []).append(node.metadata.name)
    for (reason, fix), names in by_cause.items():
        yield error(
            "node-uninitialized",
            titled("Node", names),
            f"keeps the taint {UNINITIALIZED}: no pod is scheduled there",
            reason=reason,
            fix=fix,
        )


def _cause(seen: Observation, node: Node) -> tuple[str, str]:
    """Returns why a node is not initialized, and the fix. The first cause that applies counts."""
    if not seen.expected.initializes:
        return (
            "cloud-node-controller is disabled by --controllers",
            "add cloud-node-controller to --controllers of the manager",
        )
    if not isinstance(seen.lease, Unread) and seen.expected.elects:
        lease = seen.lease
        if lease is None or not is_held(lease, seen.server_now):
            return "no manager leads (see Leader election)", start(seen)
    condition = condition_of(node, CONDITION)
    if condition is not None and condition.status == "True":
        reason, message = condition.reason or "", condition.message or ""
        fix = command_for(about_node(node), reason, message)
        return f"{reason}: {message}; {ADVICE.get(reason, OTHERWISE)}", fix
    if event := _last_warning(seen, node):
        fix = command_for(about_node(node), event.reason)  # anyone may have written the message
        return f"{event.reason}: {event.message}", fix
    return (
        "the manager has not reported a reason",
        f"pileus explain node {node.metadata.name}",
    )


def _last_warning(seen: Observation, node: Node) -> Event | None:
    events = seen.node_events if isinstance(seen.node_events, tuple) else ()
    about = [
        event
        for event in events
        if event.involved_object.name == node.metadata.name
        and event.type == "Warning"
        and "cloud-node"
        in (event.reporting_component or (event.source and event.source.component) or "")
        and event.last_seen
    ]
    return max(about, key=lambda event: event.last_seen or seen.now, default=None)


def _without_flag(old: Iterable[Node]) -> Iterator[Finding]:
    names = [
        node.metadata.name
        for node in old
        if not is_uninitialized(node) and not provider_id_of(node)
    ]
    if names:
        yield error(
            "kubelet-flag-missing",
            titled("Node", names),
            "has no provider ID and never had the taint of new nodes",
            reason="its kubelet runs without --cloud-provider=external, so that the manager does "
            "not initialize the node and load balancers do not reach it",
            fix=FLAG_FIX.format(names=" ".join(sorted(names)), taint=UNINITIALIZED),
        )


def _foreign(seen: Observation, found: Iterable[Node]) -> Iterator[Finding]:
    ours = {cloud.scheme for cloud in seen.clouds if cloud.scheme}
    if not ours or any(not cloud.scheme for cloud in seen.clouds):
        return
    for scheme, names in _by_scheme(found).items():
        if scheme in ours:
            continue
        embedded = EMBEDDED.get(scheme)
        by = f"the cloud controller manager inside {embedded}" if embedded else "another provider"
        yield (error if embedded else warning)(
            "node-of-another-provider",
            titled("Node", names),
            f"has a provider ID of {by} ({scheme}://)",
            reason=f"the manager for {listed(ours)} does not manage nodes of other providers",
            fix="turn that manager off and register the node again: docs/guides/migrate.md"
            if embedded
            else f"kubectl get node {min(names)} --output=yaml   # if the ID is wrong, drain and "
            "delete the node, and restart its kubelet, which registers it again",
        )


def _by_scheme(found: Iterable[Node]) -> Mapping[str, Sequence[str]]:
    schemes: dict[str, list[str]] = {}
    for node in found:
        scheme, separator, _ = provider_id_of(node).partition("://")
        if separator:
            schemes.setdefault(scheme, []).append(node.metadata.name)
    return schemes
