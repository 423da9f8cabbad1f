"""Core API group: nodes, services, volumes, events and the few others that the manager touches."""

import msgspec

from pileus.kube.model.meta import (
    Condition,
    Int32,
    KubeObject,
    Labels,
    Resource,
    Time,
    Wire,
    share,
    take,
)


class Taint(Wire, frozen=True):
    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: Time | None = None


class NodeAddress(Wire, frozen=True):
    type: str = ""
    address: str = ""


class NodeCondition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None


class NodeSystemInfo(Wire, frozen=True):
    system_uuid: str | None = msgspec.field(name="systemUUID", default=None)
    machine_id: str | None = msgspec.field(name="machineID", default=None)


class NodeSpec(Wire, frozen=True):
    provider_id: str | None = msgspec.field(name="providerID", default=None)
    pod_cidr: str | None = msgspec.field(name="podCIDR", default=None)
    pod_cidrs: tuple[str, ...] | None = msgspec.field(name="podCIDRs", default=None)
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool | None = None


class NodeStatus(Wire, frozen=True):
    addresses: tuple[NodeAddress, ...] | None = None
    conditions: tuple[NodeCondition, ...] | None = None
    node_info: NodeSystemInfo | None = None
    volumes_in_use: tuple[str, ...] | None = None


class Node(KubeObject, frozen=True):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    def share_strings(self, before: KubeObject | None = None) -> None:
        super().share_strings(before)
        former = before if isinstance(before, Node) else None
        spec, status = self.spec, self.status
        if spec is not None and not take(spec, "taints", former and former.spec):
            share(spec.taints, "key", "value", "effect")
        if status is None:
            return
        was = former and former.status
        if not take(status, "conditions", was):
            share(status.conditions, "type", "status", "reason", "message")
        if not take(status, "addresses", was):
            share(status.addresses, "type")


class ObjectReference(Wire, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Wire, frozen=True):
    component: str = ""
    host: str = ""


class Event(KubeObject, frozen=True):
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource | None = None
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    count: Int32 = 0
    type: str = ""
    reporting_component: str = ""
    reporting_instance: str = ""


class ServicePort(Wire, frozen=True):
    name: str = ""
    protocol: str = "TCP"
    port: Int32 = 0
    target_port: Int32 | str | None = None
    node_port: Int32 = 0
    app_protocol: str | None = None


class ClientIpConfig(Wire, frozen=True):
    timeout_seconds: Int32 | None = None


class SessionAffinityConfig(Wire, frozen=True):
    client_ip: ClientIpConfig | None = msgspec.field(name="clientIP", default=None)


class ServiceSpec(Wire, frozen=True):
    type: str = ""
    ports: tuple[ServicePort, ...] | None = None
    cluster_ips: tuple[str, ...] | None = msgspec.field(name="clusterIPs", default=None)
    external_ips: tuple[str, ...] | None = msgspec.field(name="externalIPs", default=None)
    external_traffic_policy: str = ""
    health_check_node_port: Int32 = 0
    ip_families: tuple[str, ...] | None = None
    ip_family_policy: str | None = None
    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_class: str | None = None
    load_balancer_ip: str = msgspec.field(name="loadBalancerIP", default="")
    load_balancer_source_ranges: tuple[str, ...] | None = None
    session_affinity: str = ""
    session_affinity_config: SessionAffinityConfig | None = None


class PortStatus(Wire, frozen=True):
    port: Int32 = 0
    protocol: str = ""
    error: str | None = None


class LoadBalancerIngress(Wire, frozen=True):
    ip: str | None = None
    hostname: str | None = None
    ip_mode: str | None = None
    ports: tuple[PortStatus, ...] | None = None


class LoadBalancerStatus(Wire, frozen=True):
    ingress: tuple[LoadBalancerIngress, ...] | None = None


class ServiceStatus(Wire, frozen=True):
    load_balancer: LoadBalancerStatus | None = None
    conditions: tuple[Condition, ...] | None = None


class Service(KubeObject, frozen=True):
    spec: ServiceSpec | None = None
    status: ServiceStatus | None = None


class ConfigMap(KubeObject, frozen=True):
    data: Labels | None = None


class Secret(KubeObject, frozen=True):
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


class NodeSelectorRequirement(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class SecretReference(Wire, frozen=True):
    name: str = ""
    namespace: str = ""


class CsiSource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""
    fs_type: str = ""
    read_only: bool = False
    volume_attributes: Labels | None = None
    controller_publish_secret_ref: SecretReference | None = None
    node_stage_secret_ref: SecretReference | None = None
    node_publish_secret_ref: SecretReference | None = None
    controller_expand_secret_ref: SecretReference | None = None
    node_expand_secret_ref: SecretReference | None = None


class CinderSource(Wire, frozen=True):
    volume_id: str = msgspec.field(name="volumeID", default="")


class FlexSource(Wire, frozen=True):
    driver: str = ""
    options: Labels | None = None


class PersistentVolumeSpec(Wire, frozen=True):
    capacity: Labels | None = None
    access_modes: tuple[str, ...] | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str | None = None
    mount_options: tuple[str, ...] | None = None
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    cinder: CinderSource | None = None
    flex_volume: FlexSource | None = None


class PersistentVolumeStatus(Wire, frozen=True):
    phase: str = ""
    message: str = ""
    reason: str = ""


class PersistentVolume(KubeObject, frozen=True):
    spec: PersistentVolumeSpec | None = None
    status: PersistentVolumeStatus | None = None


class VolumeResources(Wire, frozen=True):
    requests: Labels | None = None
    limits: Labels | None = None


class TypedReference(Wire, frozen=True):
    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class LabelSelector(Wire, frozen=True):
    match_labels: Labels | None = None


class PersistentVolumeClaimSpec(Wire, frozen=True):
    access_modes: tuple[str, ...] | None = None
    resources: VolumeResources | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str = ""
    data_source: TypedReference | None = None
    data_source_ref: TypedReference | None = None
    selector: LabelSelector | None = None


class PersistentVolumeClaimStatus(Wire, frozen=True):
    phase: str = ""
    access_modes: tuple[str, ...] | None = None
    capacity: Labels | None = None
    allocated_resources: Labels | None = None
    allocated_resource_statuses: Labels | None = None
    conditions: tuple[Condition, ...] | None = None


class PersistentVolumeClaim(KubeObject, frozen=True):
    spec: PersistentVolumeClaimSpec | None = None
    status: PersistentVolumeClaimStatus | None = None


class Namespace(KubeObject, frozen=True):
    pass


class ServiceAccount(KubeObject, frozen=True):
    pass


NODES = Resource(Node, "Node", "nodes", namespaced=False)
SERVICES = Resource(Service, "Service", "services")
EVENTS = Resource(Event, "Event", "events")
CONFIG_MAPS = Resource(ConfigMap, "ConfigMap", "configmaps")
PERSISTENT_VOLUMES = Resource(
    PersistentVolume, "PersistentVolume", "persistentvolumes", namespaced=False
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    PersistentVolumeClaim, "PersistentVolumeClaim", "persistentvolumeclaims"
)
SECRETS = Resource(Secret, "Secret", "secrets")
NAMESPACES = Resource(Namespace, "Namespace", "namespaces", namespaced=False)
SERVICE_ACCOUNTS = Resource(ServiceAccount, "ServiceAccount", "serviceaccounts")
