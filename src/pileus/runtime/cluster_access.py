"""The cluster for code that a provider brings along: `ClusterAccess` with its types filled in."""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from pileus.cloud.interface import ClusterAccess
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import Node, Service
from pileus.runtime.informers import Informers


class ClusterView(Protocol):
    """Nodes and Services in the caches of the manager's informers. Read-only."""

    def node(self, name: str) -> Node | None: ...
    def nodes(self) -> Sequence[Node]: ...
    def service(self, uid: str) -> Service | None: ...
    def services(self) -> Sequence[Service]: ...


KubernetesAccess: TypeAlias = ClusterAccess[Client, Access, ClusterView, Informers]
"""What `OwnController.run` and `Cloud.leading` are called with."""
