"""Coordination API group: the Lease that leader election is about."""

from pileus.kube.model.meta import Int32, KubeObject, Resource, Time, Wire


class LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: Time | None = None
    renew_time: Time | None = None
    lease_transitions: Int32 | None = None


class Lease(KubeObject, frozen=True):
    spec: LeaseSpec | None = None


LEASES = Resource(Lease, "Lease", "leases", group="coordination.k8s.io", has_micro_times=True)
