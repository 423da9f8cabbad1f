"""Checks of leader election, and of other managers that write at the same time. Pure."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from pileus.cloud.finding import Finding
from pileus.doctor.check import Verdict, error, lasting, listed, titled, warning
from pileus.doctor.installation import install
from pileus.doctor.observation import Observation, Unread, known
from pileus.doctor.records import Container, Event, FieldsEntry, Lease, Node, Pod, Service
from pileus.version import PROGRAM

GRACE = 2.0
"""Seconds after the end of a Lease before it counts as expired: the Lease counts whole seconds."""
LATELY = timedelta(hours=1)
FLAPPING = 4
"""Changes of the leader within an hour that point to a problem; a rolling update makes two."""
ELECTED = "LeaderElection"
MANAGER = re.compile(
    r"[a-z0-9]-cloud-controller-manager|provider-[a-z]+/cloud-controller-manager"
    r"|cloud-provider-[a-z]|[a-z0-9]-ccm\b"
)
"""Images, commands and field managers of managers for one provider. The plain name is not enough:
it is also that of our own program, in an image of any name."""
LEASE_NAME = re.compile(r"cloud-controller-manager|-ccm$")
DISTRIBUTIONS = frozenset({"k3s", "rke2"})
"""Field managers of distributions with a cloud controller manager inside."""
OURS = "pileus"
PART_OF = "app.kubernetes.io/part-of"


def election(seen: Observation) -> Verdict:
    """The Lease of the manager."""
    expected, lease = seen.expected, known(seen.lease)
    if not expected.elects:
        return _without_election(seen, lease)
    if lease is None:
        return Verdict("", (_no_lease(seen),))
    holder, age = holder_of(lease), _since_renewal(lease, seen.server_now)
    findings = [*_not_held(seen, lease, holder, age)]
    if not findings:
        findings = [*_other_holder(seen, lease, holder)]
    findings += _flapping(seen, lease)
    return Verdict(f"{holder} leads; Lease renewed {age:.0f} s ago", tuple(findings))


def _without_election(seen: Observation, lease: Lease | None) -> Verdict:
    if lease is None or not is_held(lease, seen.server_now):
        return Verdict("off (--leader-elect=false)", is_skipped=True)
    found = error(
        "election-disabled",
        f"Lease {seen.expected.lease}",
        f"{holder_of(lease)} leads, but --leader-elect=false lets a second manager write as well",
        reason="two managers would change the same nodes and load balancers",
        fix="remove --leader-elect=false from the manager's flags",
    )
    return Verdict("", (found,))


def _no_lease(seen: Observation) -> Finding:
    expected, command = seen.expected, start(seen)
    also = "" if "   # " in command else "   # or give the manager's --leader-elect-resource-name"
    return error(
        "lease-missing",
        f"Lease {expected.lease}",
        "does not exist",
        reason="no manager has run in this cluster, or it uses another Lease",
        fix=f"{command}{also}",
    )


def start(seen: Observation) -> str:
    """Returns the command that makes the manager run, or that shows why it does not."""
    return install(seen.installation, seen.expected.given)


def holder_of(lease: Lease) -> str:
    return (lease.spec and lease.spec.holder_identity) or ""


def _since_renewal(lease: Lease, now: datetime) -> float:
    """Returns the seconds since the last renewal; 0 if it is not known."""
    renewed = lease.spec and lease.spec.renew_time
    return (now - renewed).total_seconds() if renewed else 0.0


def is_held(lease: Lease, now: datetime) -> bool:
    """Whether a process leads with this Lease."""
    lasts = (lease.spec and lease.spec.lease_duration_seconds) or 0
    return bool(holder_of(lease)) and _since_renewal(lease, now) <= lasts + GRACE


def _not_held(seen: Observation, lease: Lease, holder: str, age: float) -> Iterator[Finding]:
    expected = seen.expected
    where = f"kubectl --namespace={expected.account.partition('/')[0]}"
    lasts = (lease.spec and lease.spec.lease_duration_seconds) or 0
    if not holder:
        yield error(
            "lease-released",
            f"Lease {expected.lease}",
            f"has no holder since {lasting(max(age, 0.0))}",
            reason="the manager was stopped, and none has started since. Nodes and Services are "
            "not managed",
            fix=start(seen),
        )
    elif age > lasts + GRACE:
        yield error(
            "lease-expired",
            f"Lease {expected.lease}",
            f"was last renewed {lasting(age)} ago by {holder}, and expired after {lasts} s",
            reason="the manager was killed, or does not reach the API server. Nodes and Services "
            "are not managed",
            fix=f"{where} get pods   # then see its log: {where} logs POD --previous",
        )


def _other_holder(seen: Observation, lease: Lease, holder: str) -> Iterator[Finding]:
    writer = last_writer(lease.metadata.managed_fields or ())
    if writer and writer != PROGRAM and (MANAGER.search(writer) or writer in DISTRIBUTIONS):
        yield error(
            "lease-held-by-another-manager",
            f"Lease {seen.expected.lease}",
            f"is held by {holder}, which is {writer} and not Pileus",
            reason="Pileus waits for the Lease as long as this process renews it",
            fix="stop the other manager; see docs/guides/migrate.md",
        )
    elif not isinstance(seen.pods, Unread) and (pods := [*filter(is_ours, seen.pods)]):
        host = holder.rpartition("_")[0]
        if not any(host in _hosts(pod) for pod in pods):
            yield warning(
                "lease-held-from-outside",
                f"Lease {seen.expected.lease}",
                f"is held by {holder}, which is none of the manager's pods "
                f"({listed(pod.metadata.name for pod in pods)})",
                reason="a manager outside of these pods leads, perhaps with other flags",
                fix=f"find the process on host {host} and stop it if it is not wanted",
            )


def last_writer(entries: Iterable[FieldsEntry]) -> str:
    """Returns the field manager that wrote last."""
    dated = [(each.time, each.manager) for each in entries if each.time]
    return max(dated, default=(None, ""))[1]


def _hosts(pod: Pod) -> Iterator[str]:
    """Yields the names under which a process in the pod may know its host."""
    yield pod.metadata.name
    if pod.spec:
        yield from (pod.spec.hostname, pod.spec.node_name, pod.spec.node_name.partition(".")[0])


def _flapping(seen: Observation, lease: Lease) -> Iterator[Finding]:
    events: tuple[Event, ...] = seen.lease_events if isinstance(seen.lease_events, tuple) else ()
    changes = sum(
        max(event.count, 1)
        for event in events
        if event.reason == ELECTED
        and event.involved_object.name == lease.metadata.name
        and "became leader" in event.message
        and event.last_seen
        and seen.server_now - event.last_seen < LATELY
    )
    if changes >= FLAPPING:
        yield warning(
            "lease-flapping",
            f"Lease {seen.expected.lease}",
            f"changed its leader {changes} times within an hour",
            reason="the leader loses the API server or is restarted. Each change restarts all work",
            fix="kubectl --namespace="
            f"{seen.expected.lease_namespace} get events --field-selector=reason={ELECTED}",
        )


def is_ours(pod: Pod) -> bool:
    """Whether a pod runs Pileus."""
    is_labelled = (pod.metadata.labels or {}).get(PART_OF) == OURS
    return _is_alive(pod) and (is_labelled or any(map(_is_pileus, _containers(pod))))


def _is_pileus(container: Container) -> bool:
    words = (container.image, *(container.command or ()), *(container.args or ()))
    return any(OURS in word for word in words)


def is_another_manager(pod: Pod) -> bool:
    """Whether a pod runs a cloud controller manager that is not Pileus."""
    if is_ours(pod):
        return False
    return _is_alive(pod) and any(
        MANAGER.search(" ".join((each.image, each.name, *(each.command or ())[:1])))
        for each in _containers(pod)
    )


def _is_alive(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and (
        pod.status is None or pod.status.phase not in {"Succeeded", "Failed"}
    )


def _containers(pod: Pod) -> tuple[Container, ...]:
    return pod.spec.containers if pod.spec else ()


def other_managers(seen: Observation) -> Verdict:
    """Whether another cloud controller manager works on the same objects."""
    pods, leases = known(seen.pods), known(seen.leases)
    nodes, services = known(seen.nodes), known(seen.services)
    return Verdict(
        "no other cloud controller manager found",
        (
            *_other_pods(pods),
            *_second_leases(seen, leases),
            *_other_writers(seen, (*nodes, *services)),
            *_without_lease(pods),
        ),
    )


def _other_pods(pods: Iterable[Pod]) -> Iterator[Finding]:
    pods = tuple(pods)
    has_ours = any(map(is_ours, pods))
    for pod in filter(is_another_manager, pods):
        image = next((each.image for each in _containers(pod) if MANAGER.search(each.image)), "")
        make = error if has_ours else warning
        yield make(
            "other-manager-pod",
            f"Pod {pod.metadata.namespace}/{pod.metadata.name}",
            f"runs another cloud controller manager ({image or _containers(pod)[0].name})",
            reason="two managers change the same nodes and load balancers, unless both use the "
            "same Lease; then the other one takes over when Pileus fails",
            fix=f"kubectl --namespace={pod.metadata.namespace} get deployments,daemonsets   # "
            "delete the one of that pod; see docs/guides/migrate.md",
        )


def _second_leases(seen: Observation, leases: Iterable[Lease]) -> Iterator[Finding]:
    for lease in leases:
        name = lease.metadata.name
        if name in seen.expected.lease_names or not LEASE_NAME.search(name):
            continue
        subject = f"Lease {lease.metadata.namespace}/{name}"
        if is_held(lease, seen.server_now):
            yield error(
                "second-lease",
                subject,
                f"is held by {holder_of(lease)}: a second cloud controller manager is at work",
                reason=f"it does not compete with the manager of Lease {seen.expected.lease}; both "
                "write",
                fix="stop one of them; see docs/guides/migrate.md",
            )


def _other_writers(seen: Observation, objects: Iterable[Node | Service]) -> Iterator[Finding]:
    written: dict[str, list[str]] = {}
    for each in objects:
        for entry in each.metadata.managed_fields or ():
            is_other = entry.manager != PROGRAM and (
                MANAGER.search(entry.manager) or entry.manager == "cloud-controller"
            )
            if is_other and entry.time and seen.server_now - entry.time < LATELY:
                written.setdefault(entry.manager, []).append(_title(each))
    for manager, titles in written.items():
        yield error(
            "other-writer",
            f"field manager {manager}",
            f"wrote to {listed(set(titles))} within the last hour",
            reason="another cloud controller manager is at work, or was until recently",
            fix="kubectl get pods --all-namespaces | grep -i cloud   # stop it; see "
            "docs/guides/migrate.md",
        )


def _title(each: Node | Service) -> str:
    meta = each.metadata
    if isinstance(each, Node):
        return f"Node {meta.name}"
    return f"Service {meta.namespace}/{meta.name}"


def _without_lease(pods: Iterable[Pod]) -> Iterator[Finding]:
    careless = [
        pod
        for pod in filter(is_ours, pods)
        if any("--leader-elect=false" in _words(container) for container in _containers(pod))
    ]
    if len(careless) > 1:
        yield error(
            "managers-without-lease",
            titled("Pod", [pod.metadata.name for pod in careless]),
            "run the manager with --leader-elect=false at the same time",
            reason="all of them write",
            fix="remove --leader-elect=false from the manager's flags, or run one replica",
        )


def _words(container: Container) -> tuple[str, ...]:
    return (*(container.command or ()), *(container.args or ()))
