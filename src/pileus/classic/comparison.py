"""When a Service has changed so that its load balancer must be ensured again. Pure."""

import msgspec

from pileus.kube.model.core_v1 import Service, ServiceSpec


def needs_ensure(before: Service, after: Service) -> bool:
    """The Go framework's *needs update*, field by field."""
    return _relevant(before) != _relevant(after)


def _relevant(service: Service) -> tuple[object, ...]:
    spec = service.spec or ServiceSpec()
    return (
        service.metadata.uid,
        service.metadata.annotations or {},
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
