"""When a Service has changed so that its load balancer must be ensured again. Pure."""

from collections.abc import Iterable

import msgspec

from pileus.cloud.fingerprint import digest
from pileus.kube.model.core_v1 import Service, ServiceSpec

NOTE = "pileus.dev/ensured"
"""The annotation in which we ourselves note what was ensured (`classic.notes`)."""


def needs_ensure(before: Service, after: Service) -> bool:
    """The Go framework's *needs update*, field by field."""
    return fingerprint(before) != fingerprint(after)


def fingerprint(service: Service, *context: str) -> str:
    """A short hash of all that *needs update* looks at, and of what else counts (`context`)."""
    return digest(*context, msgspec.to_builtins(_relevant(service)))


def members_hash(members: Iterable[tuple[str, str]]) -> str:
    """A short hash of a set of nodes, by names and provider IDs."""
    return digest(sorted(members))


def _relevant(service: Service) -> tuple[object, ...]:
    spec = service.spec or ServiceSpec()
    annotations = service.metadata.annotations or {}
    return (
        service.metadata.uid,
        sorted(item for item in annotations.items() if item[0] != NOTE),
        spec.type,
        spec.load_balancer_class,
        spec.load_balancer_source_ranges or (),
        tuple(msgspec.structs.astuple(port) for port in spec.ports or ()),
        spec.session_affinity,
        spec.session_affinity_config,
        spec.load_balancer_ip,
        spec.external_ips or (),
        spec.external_traffic_policy,
        spec.health_check_node_port,
        len(spec.ip_families or ()),
    )
