"""What a provider implements: one small protocol per capability, and a record of them.

A provider is one function `connect(config)` that returns an async context manager of a `Cloud`. A
capability that it lacks is None; the controller for it is then not started.

Every method is idempotent: a second call has no further effect, and deleting a missing object
succeeds. Methods raise only `pileus.cloud.errors`, and neither retry nor sleep. The manager calls
them through `pileus.cloud.middleware`, which adds:

- batching: concurrent lookups and observations become one call (`Abilities.batches`);
- a call budget shared by all controllers (`Abilities.limits`), which also keeps the silence that a
  cloud asks for (`Throttled.retry_after`);
- a check of the leader lease before every write;
- metrics, and a deadline for each call (`Abilities.deadlines`), after which the call is cancelled;
- checks of every answer: what the contract does not allow is logged and becomes `Unavailable`.

A method that makes several requests calls `pileus.cloud.permission.check_permission()` before each
of them. If its requests run side by side, it passes errors to `pass_on()`: a cloud that asks one
request to wait is then left in peace by the others, too.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, TypeVar

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Balancers
from pileus.cloud.errors import CloudError
from pileus.cloud.finding import Finding
from pileus.cloud.model import (
    Failure,
    Found,
    NodeKeys,
    NodeName,
    NodeRef,
    Route,
    SshKey,
    Zone,
    no_labels,
)
from pileus.cloud.options import Options
from pileus.cloud.volume import VolumeNames, Volumes
from pileus.dataclass import dataclass
from pileus.telemetry.instruments import Reading

Client_co = TypeVar("Client_co", covariant=True)
Config_co = TypeVar("Config_co", covariant=True)
View_co = TypeVar("View_co", covariant=True)
Informers_co = TypeVar("Informers_co", covariant=True)


class Instances(Protocol):
    """Machines of this cloud. Used by the node and lifecycle controllers."""

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        """Returns what is known of each node: its `Instance`, `Absent`, or a `Failure`.

        A node that is missing from the answer is unknown, and nothing is concluded from it.
        `Absent` means that the cloud, asked after this call began, has no such machine: the Node
        may be deleted because of it. With `fresh=False` a cache may answer with an `Instance`, but
        never with `Absent`. `Failure` reports why one node is unknown and affects no other.
        Raises CloudError only if the whole lookup failed.
        """
        ...


class Routes(Protocol):
    """Routes to the pod ranges of nodes. Used by the route controller.

    `cluster` is the ID of the cluster; ported providers know it by `--cluster-name` instead.
    """

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        """Returns every route in the account that may belong to the cluster, also those of others.

        Sets `Route.cluster` where the cloud records for which cluster a route was created. Raises
        CloudError if the list is incomplete: the caller treats it as complete.
        """
        ...

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        """Create the routes, at most 100 in one call. Returns the errors of those that failed.

        Idempotent: a route that exists succeeds. One that exists in some of several tables is
        completed.
        """
        ...

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        """Delete the routes, at most 100 in one call. Returns the errors of those that failed.

        Idempotent: a missing route succeeds. `routes` are listed ones, with their `origin`.
        """
        ...


class Clusters(Protocol):
    async def list_clusters(self) -> Sequence[str]: ...
    async def master(self, cluster: str) -> str:
        """Returns the address of the cluster's control plane. Raises NotFound."""
        ...


class SshKeys(Protocol):
    """SSH keys that machines accept. Used by the SSH key controller.

    In a cloud that keeps keys for the whole account, a key for one machine is a key for all.
    """

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        """Returns the keys that each node accepts. A node missing from the answer is unknown.

        Raises Unsupported if this cloud cannot list keys: then keys are added without a check and
        never removed.
        """
        ...

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        """Add the keys, marked as the cluster's. Returns the errors of nodes that failed.

        Idempotent: a key that exists succeeds and keeps its mark.
        """
        ...

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        """Remove those of the keys that are marked as the cluster's. Returns errors as `add` does.

        Idempotent: a missing key, or one of someone else, succeeds and is not changed.
        """
        ...


class Zones(Protocol):
    async def current(self) -> Zone:
        """Returns the zone in which this process runs."""
        ...


class ClusterAccess(Protocol[Client_co, Config_co, View_co, Informers_co]):
    """Access to the cluster for controllers that a provider brings along.

    This layer does not know the types of `pileus.kube`. A provider annotates its functions with
    `pileus.runtime.cluster_access.KubernetesAccess`, which fills them in:

        async def run(access: KubernetesAccess) -> None:
            namespace = await access.client("acme").get(NAMESPACES, "kube-system")
    """

    def client(self, identity: str) -> Client_co:
        """Returns an API client with the credentials and rate of that identity."""
        ...

    def config(self, identity: str) -> Config_co:
        """Returns address and credentials of an identity. Raises Unsupported in a plan."""
        ...

    def view(self) -> View_co:
        """Returns the nodes and Services in the caches of the manager."""
        ...

    def informers(self) -> Informers_co:
        """Returns the manager's shared informers, which are not started yet."""
        ...


AnyAccess: TypeAlias = ClusterAccess[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class OwnController:
    """A controller that the provider brings along.

    `run` is called when this process becomes the leader, and is cancelled and awaited when it no
    longer is. If it raises, it is called again with back-off; if it returns, it is not.
    """

    name: str
    """Unique among the controllers of the provider."""
    run: Callable[[AnyAccess], Awaitable[None]]
    """Called with the access to the cluster."""


class Reconciliation(StrEnum):
    """What was done with a load balancer: the methods of the Go framework's providers."""

    ENSURE = "ensure"
    UPDATE = "update"
    """Of members alone."""
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """One account in one region: its name, its capabilities, and what it declares."""

    name: str
    """Name of the provider, and scheme of its provider IDs."""
    instances: Instances | None = None
    """Machines; None: no node is initialized or deleted because of this cloud."""
    balancers: Balancers[Any, Any] | None = None
    """Load balancers; None: no Service of this cloud gets one."""
    annotations: Options | None = None
    """Annotations of Services that the provider reads. None: not declared, and every annotation
    that is not the manager's own is passed to it."""
    routes: Routes | None = None
    """Routes to pod ranges; None: the route controller is not started."""
    volumes: Volumes | None = None
    """Volumes and snapshots (`pileus.cloud.volume`); None: no volume is managed."""
    volume_names: VolumeNames = field(default_factory=VolumeNames)
    """Names by which PersistentVolumes of other drivers refer to volumes of this cloud."""
    clusters: Clusters | None = None
    """Lists of clusters, as in the Go framework; no controller asks for them."""
    ssh_keys: SshKeys | None = None
    """SSH keys; None: the SSH key controller is not started."""
    zones: Zones | None = None
    """The zone of this process, as in the Go framework; no controller asks for it."""
    absent: Mapping[str, str] = field(default_factory=no_labels)
    """Why a capability is None although the provider has it, by its name, with the setting that it
    needs: `{"routes": "router-id of [Route] is not set"}`."""
    owns: Callable[[NodeRef], bool | None] | None = None
    """Returns whether the node is a machine of this cloud; None (or no function): not known before
    a lookup. Pure, and without I/O."""
    leading: Callable[[AnyAccess], AbstractAsyncContextManager[None]] | None = None
    """Entered when this process becomes the leader, before any controller starts; left after all
    controllers have stopped."""
    controllers: tuple[OwnController, ...] = ()
    """Controllers that the provider brings along."""
    knows_leftovers: bool = True
    """False: `balancers.owners` cannot name owners whose Service is deleted."""
    abilities: Abilities = field(default_factory=Abilities)
    """What this cloud can do, and at which pace it may be called. Controllers, conformance laws and
    the simulation judge the provider by it."""
    has_cluster_id: bool = True
    """False: it has no cluster ID. The manager exits unless `--allow-untagged-cloud` is set."""
    checks: Callable[[], Awaitable[Sequence[Finding]]] | None = None
    """Returns problems of the account that a user can fix: roles, quotas, missing services. Called
    by `pileus doctor` and by nothing else. Only reads. Raises CloudError if nothing can be checked;
    a part that cannot be checked is a finding. None: the provider has no checks."""
    health: Callable[[], str | None] | None = None
    """Returns why only a restart of the process helps; None while healthy. Part of the health
    check `cloud-calls`. A provider with threads passes `Blocking.health` (`pileus.cloud.threads`).
    Must be cheap: it makes no requests."""
    metrics: Callable[[], Iterable[Reading]] | None = None
    """Returns metrics of the provider's own, such as those that its users have alerts on: `read` of
    a `MetricRegistry` (`pileus.telemetry.instruments`). They are served with the manager's."""
    reconciled: Callable[[Reconciliation, float, bool], None] | None = None
    """Called when a load balancer was ensured, updated or deleted, or that failed: with the seconds
    since the first change, and whether it failed. Only for metrics. Must not raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    """What the manager passes to a provider: the file of `--cloud-config`, and the environment."""

    path: str = ""
    """Path of the file; empty if none was given."""
    text: str | None = field(default=None, repr=False)
    """Content of the file at start; None if no file was given."""
    environ: Mapping[str, str] = field(default_factory=no_labels, repr=False)
    """Environment variables of the process."""
    cluster_name: str = "kubernetes"
    """`--cluster-name`: for ported providers, and for names that people read."""
    user_agent: tuple[str, ...] = ()
    """`--user-agent`: texts that precede the provider's own in the header of its requests."""


class Connect(Protocol):
    """A provider, found by its entry point in group `pileus.providers`."""

    def __call__(self, config: ProviderConfig) -> AbstractAsyncContextManager[Cloud]: ...
