"""Values of the contract: nodes, instances, routes, SSH keys. Frozen, compared by `==`."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import NewType

from pileus.cloud.errors import CloudError
from pileus.dataclass import dataclass

NodeName = NewType("NodeName", str)
InstanceId = NewType("InstanceId", str)

NO_LABELS: Mapping[str, str] = MappingProxyType({})


def no_labels() -> Mapping[str, str]:
    return NO_LABELS


class AddressType(StrEnum):
    INTERNAL_IP = "InternalIP"
    EXTERNAL_IP = "ExternalIP"
    INTERNAL_DNS = "InternalDNS"
    EXTERNAL_DNS = "ExternalDNS"
    HOSTNAME = "Hostname"


@dataclass(frozen=True, slots=True)
class Address:
    type: str
    """An `AddressType`, or a type that only the cloud knows. Such addresses are passed with routes
    and members, and are not written to Nodes."""
    address: str
    """An IP address, or a host name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRef:
    """A node as the cluster knows it: everything that helps to find its machine."""

    name: NodeName
    """Never identity: a new machine may get the name of a deleted one."""
    provider_id: str = ""
    """Empty until the node is initialized."""
    system_uuid: str = ""
    """UUID that the machine's firmware reports; empty if the kubelet has not reported it."""
    addresses: tuple[Address, ...] = ()
    """In the order of the Node, at most the first 1,000."""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Labels of the Node. Members of load balancers carry only `Abilities.member_labels`."""
    annotations: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Annotations of the Node. Members of load balancers carry none."""


class InstanceState(StrEnum):
    """State of a machine, and what the controllers do with its Node."""

    PENDING = "pending"
    """Starting. The node is initialized; taints for a stopped machine stay as they are."""
    RUNNING = "running"
    """The node is initialized. The taint `node.kubernetes.io/out-of-service` that the manager set
    for a stopped machine is removed; the shutdown taint is removed when the node is ready."""
    STOPPED = "stopped"
    """It exists but does not run. A node that is not ready gets the taint
    `node.cloudprovider.kubernetes.io/shutdown`; it is not deleted and stays a member."""
    UNKNOWN = "unknown"
    """It exists, and the cloud does not say more: as PENDING."""


Asked = tuple[tuple[str, str], ...]
"""Operations of the Go framework and their results, by which a ported provider was asked about a
node. Only for the metric that counts them; empty: one lookup counts as the usual operations. An
error has it as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine: its metadata, and whether it runs."""

    id: InstanceId
    provider_id: str
    """As written to the Node, with scheme. Empty only from clouds that have none."""
    type: str = ""
    """For the label `node.kubernetes.io/instance-type`; empty: no label."""
    zone: str = ""
    """For the label `topology.kubernetes.io/zone`; empty: no label."""
    region: str = ""
    """For the label `topology.kubernetes.io/region`; empty: no label."""
    addresses: tuple[Address, ...] = ()
    """In the order in which they are written to the Node."""
    names: frozenset[str] = frozenset()
    """Names that the node of this machine may have, such as the name of the machine. A new node
    that comes with the provider ID of a machine and with none of its names is refused: any kubelet
    can claim any provider ID. Upper and lower case are the same, and so are a name with and without
    its domain. Empty: not known, and names are not compared."""
    aliases: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Other forms of `provider_id` that a node of this machine may have, such as one with a region.
    One machine has one node, whichever form the provider ID of that node has."""
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Additional labels for the Node."""
    state: InstanceState = InstanceState.RUNNING
    """Whether it runs."""
    asked: Asked = field(default=(), compare=False, repr=False)
    """Only for ported providers."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The cloud, asked after the call began, has no such machine."""

    evidence: str
    """What was asked and answered, for the event that people read."""
    asked: Asked = field(default=(), compare=False, repr=False)
    """Only for ported providers."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one node or load balancer is unknown. It is treated as if it were left out."""

    error: CloudError
    """Reported on the object."""


Found = Instance | Absent | Failure
"""What a lookup answers for one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route to the pod range of one node: one entry, or the same entry in several tables."""

    destination: str
    """The pod range, a CIDR."""
    target: NodeName | None
    """Name of the node. None in a list: the provider does not know it. The core then finds the node
    by `provider_id`; without one, the route leads to an unknown machine."""
    provider_id: str = ""
    """Provider ID of the node. Of a route to be created: the node's, empty if it has none yet. Of a
    listed one: where the cloud knows its machines by ID. A listed route with another provider ID
    than its node has now leads to another machine, and is replaced."""
    aliases: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Of a listed route: other forms of `provider_id` that a node of this machine may have."""
    name: str = ""
    """Of a route to be created: the UID of the node, as a hint for the name."""
    addresses: tuple[Address, ...] | None = None
    """Addresses of the node. Of a route to be created: always. Of a listed one: only where routes
    carry addresses that must be kept current; None: they do not."""
    blackhole: bool = False
    """Whether the route leads nowhere, for example because its machine is deleted."""
    cluster: str | None = None
    """The cluster for which it was created; "" if for none. None: this cloud cannot tell
    (`Abilities.marks_routes`)."""
    missing_in: frozenset[str] = frozenset()
    """Of a listed route that belongs in several tables: names of those where it is missing. The
    core then calls `Routes.create` for it again, which completes it; it is not deleted for that."""
    origin: object = field(default=None, compare=False, repr=False)
    """The provider's own record of a listed route. The core does not read it, and passes it back to
    `Routes.delete`."""


@dataclass(frozen=True, slots=True, order=True)
class SshKey:
    """A public key with which a user may log in."""

    user: str
    """User name on the machine."""
    public_key: str = field(repr=False)
    """Algorithm and body in one line, `ssh-ed25519 AAAA…`, without a comment."""

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it: the only form of a key in logs and events."""
        body = self.public_key.split()[1]
        digest = sha256(b64decode(body + "=" * (-len(body) % 4))).digest()
        return f"SHA256:{b64encode(digest).decode().rstrip('=')}"


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The keys that the machine of one node accepts."""

    ours: frozenset[SshKey] = frozenset()
    """Added for the cluster that asks, and marked so."""
    others: frozenset[SshKey] = frozenset()
    """All other keys, which are never removed."""


@dataclass(frozen=True, slots=True)
class Zone:
    name: str
    """Failure domain."""
    region: str
    """Region of the zone."""
