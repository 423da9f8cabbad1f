"""What the doctor knows about a cluster and its clouds, as frozen values.

A part that could not be read is an `Unread`. A check gets at a part with `known(part)`: if the part
could not be read, the check is not made, and all others are.
"""

from collections.abc import Mapping
from dataclasses import field, fields
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from pileus.cloud.finding import Finding
from pileus.dataclass import dataclass
from pileus.doctor.installation import Installation
from pileus.doctor.records import (
    Binding,
    CsiDriver,
    CsiNode,
    Event,
    Lease,
    Node,
    Pod,
    Rule,
    Service,
    Subject,
)
from pileus.kube.model.admissionregistration_v1 import (
    WebhookConfiguration,
)
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.kube.model.storage_v1 import StorageClass, VolumeAttachment
from pileus.objects.rights import KUBE_SYSTEM, Right
from pileus.version import INSTALLED, PROGRAM

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unread:
    """A part that could not be read, and why."""

    what: str
    """In words, such as `Leases in kube-system`."""
    why: str
    missing: Right | None = None
    """The right that the doctor's own user lacks; None: there is another reason."""
    fix: str = "fix what the message names, then: pileus doctor"


Read: TypeAlias = T | Unread


class NotRead(Exception):
    """A check needs a part that could not be read."""

    def __init__(self, part: Unread) -> None:
        super().__init__(part.why)
        self.part = part


def known(part: Read[T]) -> T:
    """Returns the part. Raises NotRead if it could not be read."""
    if isinstance(part, Unread):
        raise NotRead(part)
    return part


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the flags say about the manager that the doctor looks for."""

    account: str = f"{KUBE_SYSTEM}/{INSTALLED}"
    """Namespace and name of its service account."""
    lease_namespace: str = KUBE_SYSTEM
    lease_name: str = PROGRAM
    lease_names: frozenset[str] = frozenset({PROGRAM})
    """All Leases that the manager takes: with leader migration there is a second one."""
    elects: bool = True
    """False: --leader-elect=false."""
    cluster_id: str = ""
    """--cluster-id; empty: the UID of kube-system."""
    providers: tuple[str, ...] = ()
    """Names of the selected cloud providers; empty: none is selected."""
    initializes: bool = True
    """Whether the cloud-node controller is enabled."""
    serves_volumes: bool = False
    """Whether the volume controller is enabled."""
    webhooks: frozenset[str] = frozenset()
    """Kinds of the webhook configurations that register the webhooks of `--webhooks`."""
    flags: tuple[str, ...] = ()
    """The manager's flags that the doctor was given."""

    @property
    def given(self) -> tuple[str, ...]:
        """The flags for a manager that is not installed yet."""
        return self.flags or (f"--cloud-provider={','.join(self.providers) or 'NAME'}",)

    @property
    def lease(self) -> str:
        return f"{self.lease_namespace}/{self.lease_name}"


@dataclass(frozen=True, slots=True)
class Server:
    """The API server."""

    host: str
    version: str
    ahead: float | None = None
    """Seconds by which its clock is ahead of the local one; None: it sent no time."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A right that an account needs, and whether it has it."""

    account: str
    """Namespace and name of the service account."""
    right: Right
    verb: str
    resource: str
    """The resource with its subresource, or a URL."""
    name: str = ""
    is_allowed: bool = False


@dataclass(frozen=True, slots=True)
class Rights:
    account: str
    """Namespace and name of the manager's service account."""
    exists: bool
    """Whether there is such a service account."""
    reviews: tuple[Reviewed, ...] = ()
    missing: tuple[str, ...] = ()
    """Accounts of controllers that do not exist, as namespace and name."""


def is_account(subject: Subject, account: str) -> bool:
    """Whether the subject of a binding is this account, given as `namespace/name`."""
    namespace, _, name = account.partition("/")
    if subject.kind == "User":
        return subject.name == f"system:serviceaccount:{namespace}:{name}"
    return subject.kind == "ServiceAccount" and (subject.namespace, subject.name) == (
        namespace,
        name,
    )


@dataclass(frozen=True, slots=True)
class Grant:
    """A binding that gives rights to an account of the manager, and the rules of its role."""

    account: str
    """Namespace and name of the account."""
    binding: Binding
    rules: tuple[Rule, ...]
    needed: tuple[Right, ...]
    """What the account needs."""
    is_current: bool = False
    """Whether it has the name of a role that the manager has with its flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudState:
    """One selected cloud."""

    name: str
    scheme: str = ""
    """Scheme of its provider IDs; empty if it could not be connected."""
    problem: str = ""
    """Why it cannot be used."""
    has_cluster_id: bool = True
    has_checks: bool = False
    """Whether the provider checks itself."""
    findings: tuple[Finding, ...] = ()
    absent: frozenset[str] = frozenset()
    """Nodes among those asked about that the cloud does not have."""
    asked: int = 0
    """Number of nodes that it was asked about."""
    missing_volumes: frozenset[str] = frozenset()
    """PersistentVolumes whose volume it does not have."""
    volume_problem: str = ""
    """Why its volumes could not be listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The objects of the drivers of Pileus."""

    classes: tuple[StorageClass, ...] = ()
    drivers: tuple[CsiDriver, ...] = ()
    nodes: tuple[CsiNode, ...] | None = ()
    """The CSINodes of all nodes; None: the API server does not have the kind."""
    attachments: tuple[VolumeAttachment, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the names of the drivers, as classes and CSIDrivers have them."""
        found = {each.provisioner for each in self.classes}
        return tuple(sorted(found | {each.metadata.name for each in self.drivers}))


def _no_endpoints() -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The input of all checks."""

    expected: Expected
    now: datetime
    """By the local clock."""
    user: str = ""
    """The doctor's own user; empty if it is not known."""
    server: Read[Server]
    rights: Read[Rights]
    cluster_id: Read[str]
    lease: Read[Lease | None]
    """The Lease of the manager; None: there is none."""
    leases: Read[tuple[Lease, ...]]
    """All Leases in its namespace."""
    nodes: Read[tuple[Node, ...]]
    services: Read[tuple[Service, ...]]
    pods: Read[tuple[Pod, ...]]
    """Pods in the namespaces of the Lease and of the manager's account."""
    lease_events: Read[tuple[Event, ...]]
    node_events: Read[tuple[Event, ...]]
    webhooks: Read[tuple[WebhookConfiguration, ...]]
    endpoints: Read[Mapping[str, int]] = field(default_factory=_no_endpoints)
    """Ready endpoints of the Services that webhooks name, by `namespace/name`."""
    storage: Read[Storage] = field(default_factory=Storage)
    volumes: Read[tuple[PersistentVolume, ...]] = ()
    """PersistentVolumes of drivers of Pileus."""
    sidecars: Read[tuple[Lease, ...]] = ()
    """Leases of the sidecars of these drivers, in all namespaces."""
    clouds: tuple[CloudState, ...] = ()
    installations: Read[tuple[Installation, ...]] = ()
    """Workloads that run the manager, in all namespaces."""
    grants: Read[tuple[Grant, ...]] = ()

    @property
    def installation(self) -> Installation | None:
        """The workload of the expected account, else any; None: none is known."""
        found = self.installations if isinstance(self.installations, tuple) else ()
        own = [each for each in found if each.account == self.expected.account]
        return next(iter((*own, *found)), None)

    @property
    def unread(self) -> tuple[Unread, ...]:
        """The parts that could not be read, each once."""
        parts = (getattr(self, each.name) for each in fields(self))
        return tuple(dict.fromkeys(part for part in parts if isinstance(part, Unread)))

    @property
    def server_now(self) -> datetime:
        """The time by the API server's clock, as far as it is known."""
        ahead = None if isinstance(self.server, Unread) else self.server.ahead
        return self.now + timedelta(seconds=ahead or 0.0)
