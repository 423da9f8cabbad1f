"""Kubernetes objects with the fields that only the doctor reads.

Other commands and the manager keep many objects in memory and do without these fields.
"""

import msgspec

from pileus.kube.model.coordination_v1 import Lease as PlainLease
from pileus.kube.model.core_v1 import Event as PlainEvent
from pileus.kube.model.core_v1 import Node as PlainNode
from pileus.kube.model.core_v1 import NodeStatus, NodeSystemInfo
from pileus.kube.model.core_v1 import Service as PlainService
from pileus.kube.model.meta import Int32, KubeObject, ObjectMeta, Resource, Time, Wire
from pileus.kube.model.storage_v1 import STORAGE


class FieldsEntry(Wire, frozen=True):
    """Who wrote fields of an object last, and when."""

    manager: str = ""
    operation: str = ""
    time: Time | None = None
    subresource: str = ""


class ManagedMeta(ObjectMeta, frozen=True):
    managed_fields: tuple[FieldsEntry, ...] | None = None


class SystemInfo(NodeSystemInfo, frozen=True):
    kubelet_version: str = ""


class Status(NodeStatus, frozen=True):
    node_info: SystemInfo | None = None


class Node(PlainNode, frozen=True):
    metadata: ManagedMeta = ManagedMeta()
    status: Status | None = None


class Service(PlainService, frozen=True):
    metadata: ManagedMeta = ManagedMeta()


class Lease(PlainLease, frozen=True):
    metadata: ManagedMeta = ManagedMeta()


class Variable(Wire, frozen=True):
    name: str = ""
    value: str = ""


class Named(Wire, frozen=True):
    name: str = ""


class VariableSource(Wire, frozen=True):
    config_map_ref: Named | None = None


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[Variable, ...] | None = None
    env_from: tuple[VariableSource, ...] | None = None


class SecretVolume(Wire, frozen=True):
    secret_name: str = ""


class Volume(Wire, frozen=True):
    name: str = ""
    secret: SecretVolume | None = None


class PodSpec(Wire, frozen=True):
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] | None = None
    node_name: str = ""
    hostname: str = ""
    service_account_name: str = ""


class PodStatus(Wire, frozen=True):
    phase: str = ""


class Pod(KubeObject, frozen=True):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class PodTemplate(Wire, frozen=True):
    spec: PodSpec | None = None


class WorkloadSpec(Wire, frozen=True):
    replicas: Int32 | None = None
    template: PodTemplate | None = None


class Workload(KubeObject, frozen=True):
    """A Deployment or DaemonSet."""

    spec: WorkloadSpec | None = None


class Rule(Wire, frozen=True):
    """One rule of a Role or ClusterRole."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] | None = None
    resources: tuple[str, ...] | None = None
    resource_names: tuple[str, ...] | None = None
    non_resource_urls: tuple[str, ...] | None = msgspec.field(default=None, name="nonResourceURLs")


class Role(KubeObject, frozen=True):
    rules: tuple[Rule, ...] | None = None


class RoleReference(Wire, frozen=True):
    kind: str = ""
    name: str = ""


class Subject(Wire, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class Binding(KubeObject, frozen=True):
    role_ref: RoleReference = RoleReference()
    subjects: tuple[Subject, ...] | None = None


class CsiDriverSpec(Wire, frozen=True):
    attach_required: bool | None = None
    volume_lifecycle_modes: tuple[str, ...] | None = None


class CsiDriver(KubeObject, frozen=True):
    spec: CsiDriverSpec | None = None


class RegisteredDriver(Wire, frozen=True):
    name: str = ""


class CsiNodeSpec(Wire, frozen=True):
    drivers: tuple[RegisteredDriver, ...] | None = None


class CsiNode(KubeObject, frozen=True):
    """The drivers that are registered with the kubelet of a node."""

    spec: CsiNodeSpec | None = None


class EndpointConditions(Wire, frozen=True):
    ready: bool | None = None


class Endpoint(Wire, frozen=True):
    conditions: EndpointConditions | None = None


class EndpointSlice(KubeObject, frozen=True):
    endpoints: tuple[Endpoint, ...] | None = None


class Event(PlainEvent, frozen=True):
    event_time: Time | None = None

    @property
    def last_seen(self) -> Time | None:
        return self.last_timestamp or self.event_time or self.first_timestamp


class ResourceAttributes(Wire, frozen=True):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class UrlAttributes(Wire, frozen=True):
    path: str = ""
    verb: str = ""


class ReviewSpec(Wire, frozen=True):
    user: str = ""
    groups: tuple[str, ...] | None = None
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: UrlAttributes | None = None


class ReviewStatus(Wire, frozen=True):
    allowed: bool | None = None
    reason: str | None = None
    evaluation_error: str | None = None


class Review(KubeObject, frozen=True):
    spec: ReviewSpec | None = None
    status: ReviewStatus | None = None


class UserInfo(Wire, frozen=True):
    username: str = ""
    groups: tuple[str, ...] | None = None


class SelfStatus(Wire, frozen=True):
    user_info: UserInfo | None = None


class SelfReview(KubeObject, frozen=True):
    status: SelfStatus | None = None


class Version(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to `GET /version`."""

    git_version: str = ""


AUTHORIZATION = "authorization.k8s.io"

NODES = Resource(Node, "Node", "nodes", namespaced=False)
SERVICES = Resource(Service, "Service", "services")
PODS = Resource(Pod, "Pod", "pods")
EVENTS = Resource(Event, "Event", "events")
LEASES = Resource(Lease, "Lease", "leases", group="coordination.k8s.io")
ENDPOINT_SLICES = Resource(
    EndpointSlice, "EndpointSlice", "endpointslices", group="discovery.k8s.io"
)
CSI_DRIVERS = Resource(CsiDriver, "CSIDriver", "csidrivers", group=STORAGE, namespaced=False)
CSI_NODES = Resource(CsiNode, "CSINode", "csinodes", group=STORAGE, namespaced=False)
APPS, RBAC = "apps", "rbac.authorization.k8s.io"
DEPLOYMENTS = Resource(Workload, "Deployment", "deployments", group=APPS)
DAEMON_SETS = Resource(Workload, "DaemonSet", "daemonsets", group=APPS)
ROLES = Resource(Role, "Role", "roles", group=RBAC)
CLUSTER_ROLES = Resource(Role, "ClusterRole", "clusterroles", group=RBAC, namespaced=False)
ROLE_BINDINGS = Resource(Binding, "RoleBinding", "rolebindings", group=RBAC)
CLUSTER_ROLE_BINDINGS = Resource(
    Binding, "ClusterRoleBinding", "clusterrolebindings", group=RBAC, namespaced=False
)
SELF_REVIEWS = Resource(
    SelfReview,
    "SelfSubjectReview",
    "selfsubjectreviews",
    group="authentication.k8s.io",
    namespaced=False,
)
OWN_ACCESS = Resource(
    Review,
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    group=AUTHORIZATION,
    namespaced=False,
)
ACCESS = Resource(
    Review, "SubjectAccessReview", "subjectaccessreviews", group=AUTHORIZATION, namespaced=False
)
REVIEWS = (SELF_REVIEWS, OWN_ACCESS, ACCESS)
"""What is created to ask a question: the API server answers it and stores nothing."""
