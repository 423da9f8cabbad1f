"""Checks for marks that a manager made and no manager removes. Pure."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from pileus.cloud.finding import Finding
from pileus.controllers.lifecycle.patches import CONDITION as INSTANCE_GONE
from pileus.controllers.lifecycle.patches import GONE
from pileus.controllers.node.plan import CONDITION as UNINITIALIZED
from pileus.controllers.service.status import FINALIZER, has_finalizer
from pileus.controllers.service.status import condition_of as service_condition
from pileus.doctor.check import Verdict, counted, error, lasting, note, titled, warning
from pileus.doctor.manager_checks import LEASE_NAME, is_held, start
from pileus.doctor.observation import Observation, Unread, known
from pileus.doctor.records import Lease, Node, Service
from pileus.objects.nodes import condition_of, is_ready, taints_of

SLOW_DELETION = timedelta(minutes=5)
GO_MARK = "loadbalancer.openstack.org/load-balancer-id"
"""The annotation in which the Go OpenStack manager keeps the ID of a load balancer."""


def leftovers(seen: Observation) -> Verdict:
    """Marks that stay when the manager that made them does not run."""
    services, nodes, lease = known(seen.services), known(seen.nodes), known(seen.lease)
    is_led = lease is not None and is_held(lease, seen.server_now)
    findings = [*_stuck_services(seen, services, is_led=is_led)]
    if not is_led and seen.expected.elects:
        findings += _conditions(nodes, services)
    findings += [*_taints(nodes), *_go_marks(services)]
    if not isinstance(seen.leases, Unread):
        findings += _old_leases(seen, seen.leases)
    return Verdict(
        f"none ({counted(len(nodes), 'node')}, {counted(len(services), 'Service')})",
        tuple(findings),
    )


def _stuck_services(
    seen: Observation, services: Iterable[Service], *, is_led: bool
) -> Iterator[Finding]:
    for service in services:
        since = service.metadata.deletion_timestamp
        is_stuck = since is not None and seen.server_now - since > SLOW_DELETION
        if not is_stuck or since is None or not has_finalizer(service):
            continue
        name = f"{service.metadata.namespace}/{service.metadata.name}"
        waiting = lasting((seen.server_now - since).total_seconds())
        yield error(
            "service-deletion-stuck",
            f"Service {name}",
            f"is being deleted since {waiting}: the finalizer {FINALIZER} keeps it",
            reason="its load balancer is not deleted yet"
            if is_led
            else "no manager runs that deletes its load balancer",
            fix=f"pileus explain service {name}" if is_led else start(seen),
        )


def _conditions(nodes: Iterable[Node], services: Iterable[Service]) -> Iterator[Finding]:
    marked = [
        node.metadata.name
        for node in nodes
        for kind in (UNINITIALIZED, INSTANCE_GONE)
        if (found := condition_of(node, kind)) and found.status == "True"
    ]
    if marked:
        yield warning(
            "condition-left",
            titled("Node", sorted(set(marked))),
            "has a condition of a manager that does not run",
            reason="the condition is not updated any more, and may be wrong",
            fix="start the manager, which updates it; see docs/guides/migrate.md to remove it",
        )
    ready = [
        f"{service.metadata.namespace}/{service.metadata.name}"
        for service in services
        if service_condition(service)
    ]
    if ready:
        yield warning(
            "service-unmanaged",
            titled("Service", ready),
            "has a load balancer of a manager that does not run",
            reason="changes of nodes and ports do not reach the load balancer",
            fix="start the manager, or migrate to another one: docs/guides/migrate.md",
        )


def _taints(nodes: Iterable[Node]) -> Iterator[Finding]:
    for node in nodes:
        if is_ready(node) and any(taint.key == GONE.key for taint in taints_of(node)):
            yield warning(
                "taint-left",
                f"Node {node.metadata.name}",
                f"is ready, but has the taint {GONE.key}",
                reason="the cloud reported its machine as deleted, and its kubelet still reports",
                fix=f"pileus explain node {node.metadata.name}",
            )


def _go_marks(services: Iterable[Service]) -> Iterator[Finding]:
    found = [
        f"{service.metadata.namespace}/{service.metadata.name}"
        for service in services
        if GO_MARK in (service.metadata.annotations or {}) and not service_condition(service)
    ]
    if found:
        yield note(
            "go-manager-marks",
            titled("Service", found),
            "has a load balancer of the Go OpenStack manager that Pileus has not taken over",
            reason="Pileus takes it over when it reconciles the Service",
            fix="pileus plan   # shows what changes; see "
            "docs/guides/take-over-from-the-go-openstack-ccm.md",
        )


def _old_leases(seen: Observation, leases: Iterable[Lease]) -> Iterator[Finding]:
    for lease in leases:
        name = lease.metadata.name
        is_other = name not in seen.expected.lease_names and LEASE_NAME.search(name)
        if is_other and not is_held(lease, seen.server_now):
            where = lease.metadata.namespace
            yield note(
                "lease-left",
                f"Lease {where}/{name}",
                "is not held any more",
                reason="another cloud controller manager used it",
                fix=f"kubectl --namespace={where} delete lease {name}",
            )
