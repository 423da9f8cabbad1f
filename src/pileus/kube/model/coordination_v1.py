"""Coordination API group: the Lease that leader election is about."""

from datetime import datetime

from pileus.kube.model.meta import KubeObject, Resource, Wire


class LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True):
    spec: LeaseSpec | None = None


LEASES = Resource(Lease, "Lease", "leases", group="coordination.k8s.io")
