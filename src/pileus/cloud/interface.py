"""What a provider implements: one small protocol per capability, and a record of them.

A provider is one function `connect(config)` returning an async context manager that yields a
`Cloud`. A capability it lacks is `None`; the controller for it is then not started. Every method
is idempotent, raises only `pileus.cloud.errors`, and neither retries nor sleeps: retries, rate,
metrics, batching and dry runs are put around it by `pileus.cloud.middleware`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Balancers
from pileus.cloud.errors import CloudError
from pileus.cloud.model import (
    Failure,
    Found,
    InstanceId,
    NodeKeys,
    NodeName,
    NodeRef,
    Route,
    SshKey,
    Volume,
    VolumeId,
    VolumeSpec,
    Zone,
    no_labels,
)
from pileus.cloud.options import Options


class Instances(Protocol):
    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        """Look up many nodes at once. A node missing from the answer is unknown.

        Guarantees: `Absent` is positive and read after the call began, never from a cache.
        With `fresh=False` a cache may answer positively. `Failure` says why one node is unknown
        and harms no other; raise only when the whole look-up failed.
        """
        ...


class Routes(Protocol):
    async def list_routes(self, cluster: str) -> Sequence[Route]:
        """Every route that could concern the cluster, others' included. Part of them is none.

        Where the cloud can say for which cluster each was created, it does (`Route.cluster`).
        `cluster` is the cluster's id; ported providers know it by `--cluster-name` instead.
        """
        ...

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        """Create them; the answer names those that failed. What is there already succeeds."""
        ...

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        """Delete them; the answer names those that failed. What is gone succeeds."""
        ...


class Volumes(Protocol):
    async def list_volumes(
        self, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, Volume]:
        """All of ours, or those named; one missing from the answer does not exist."""
        ...

    async def create(self, spec: VolumeSpec) -> Volume: ...
    async def delete(self, volume: VolumeId) -> None: ...
    async def attach(self, volume: VolumeId, instance: InstanceId) -> Volume: ...
    async def detach(self, volume: VolumeId, instance: InstanceId) -> None: ...
    async def resize(self, volume: VolumeId, size_gib: int) -> Volume:
        """Grow it; never shrinks."""
        ...


class Clusters(Protocol):
    async def list_clusters(self) -> Sequence[str]: ...
    async def master(self, cluster: str) -> str:
        """The address of the cluster's control plane."""
        ...


class SshKeys(Protocol):
    """Where a cloud keeps keys for all its instances at once, all of them get what one gets."""

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        """Which keys the nodes accept. A node missing from the answer is unknown.

        Errors: `Unsupported`, if this cloud cannot tell; then keys are added without looking, and
        never withdrawn.
        """
        ...

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        """Add them, marked as the cluster's; the answer names the nodes that failed.

        A key that is there already succeeds, and stays whose it is.
        """
        ...

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        """Remove those of them that are marked as the cluster's; the answer as with `add`.

        What is gone, or someone else's, succeeds and is left as it is.
        """
        ...


class Zones(Protocol):
    async def current(self) -> Zone:
        """The zone in which this very program runs."""
        ...


class ClusterAccess(Protocol):
    """A provider's own door to the cluster, for what it brings along.

    The answers are objects of the Kubernetes layer, of which this one knows nothing.
    """

    def client(self, identity: str) -> object:
        """A `pileus.kube.client.Client` with that identity's credentials and rate."""
        ...

    def config(self, identity: str) -> object:
        """The `pileus.kube.access.Access` of that identity."""
        ...

    def view(self) -> object:
        """The manager's own, read-only view of nodes and services (`classic.view.ClusterView`)."""
        ...

    def informers(self) -> object:
        """The manager's shared informers, not yet started."""
        ...


@dataclass(frozen=True, slots=True)
class OwnController:
    """A controller that the provider brings along (seed: Alibaba's route and node controllers).

    `run` starts when this process leads, and is cancelled and awaited when that ends. If it raises
    it is called again after a while; if it returns it is not.
    """

    name: str
    run: Callable[[ClusterAccess], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """One account in one region: its name, and what it can do."""

    name: str
    """The provider's name, and the scheme of its provider IDs."""
    instances: Instances | None = None
    balancers: Balancers[Any, Any] | None = None
    annotations: Options | None = None
    """What users may set on a Service; None: not declared, and every annotation is passed on."""
    routes: Routes | None = None
    volumes: Volumes | None = None
    clusters: Clusters | None = None
    ssh_keys: SshKeys | None = None
    zones: Zones | None = None
    owns: Callable[[NodeRef], bool | None] | None = None
    """Whether the node is one of ours; None (or no function): not known before asking."""
    leading: Callable[[ClusterAccess], AbstractAsyncContextManager[None]] | None = None
    """Entered when this process leads, before any controller starts; left after all stopped."""
    controllers: tuple[OwnController, ...] = ()
    knows_leftovers: bool = True
    """False: `balancers.owners` cannot name those whose Service is gone."""
    abilities: Abilities = field(default_factory=Abilities)
    """What this cloud can do, and at which pace it may be called. Controllers, conformance laws and
    the simulation judge the provider by it."""
    has_cluster_id: bool = True
    """False stops the manager unless `--allow-untagged-cloud` is given."""
    health: Callable[[], str | None] | None = None
    """Returns why only a restart of the process helps; None while healthy. Part of the health
    check `cloud-calls`. A provider with threads passes `Blocking.health` (`pileus.cloud.threads`).
    Must be cheap: it makes no requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    """What the manager hands to a provider: the file of `--cloud-config`, and the environment."""

    path: str = ""
    text: str | None = field(default=None, repr=False)
    """The file's content at start; None when no file was given."""
    environ: Mapping[str, str] = field(default_factory=no_labels, repr=False)
    cluster_name: str = "kubernetes"


class Connect(Protocol):
    """A provider, found by its entry point in group `pileus.providers`."""

    def __call__(self, config: ProviderConfig) -> AbstractAsyncContextManager[Cloud]: ...
