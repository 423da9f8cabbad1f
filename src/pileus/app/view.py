"""What a provider may see and use of the cluster: its door for controllers of its own."""

from dataclasses import dataclass

from pileus.app.context import ManagerContext
from pileus.cloud.errors import Unsupported
from pileus.kube.access import Access as KubeAccess
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.kube.store import NamespacedName
from pileus.runtime.informers import BY_UID, UID_INDEX, Informers


@dataclass(frozen=True, slots=True)
class View:
    """Nodes and Services as the manager's own informers have them."""

    shared: Informers

    def node(self, name: str) -> Node | None:
        return self.shared.of(NODES).store.get(NamespacedName("", name))

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.shared.of(NODES).store.list())

    def service(self, uid: str) -> Service | None:
        return next(iter(self.shared.of(SERVICES, UID_INDEX).store.by_index(BY_UID, uid)), None)

    def services(self) -> tuple[Service, ...]:
        return tuple(self.shared.of(SERVICES, UID_INDEX).store.list())


@dataclass(frozen=True, slots=True)
class Access:
    """The `ClusterAccess` that a provider gets when this process leads."""

    context: ManagerContext

    def client(self, identity: str) -> Client:
        return self.context.clients.controller(identity, fence=self.context.fence)

    def config(self, identity: str) -> KubeAccess:
        """Errors: `Unsupported` where nothing may be written, for with it anything could be."""
        if self.context.config.dry_run:
            raise Unsupported(
                "a plan or dry run does not hand out credentials to the cluster, since whoever has "
                "them could write; the provider has to use the client that it is given"
            )
        return self.context.clients.access_of(identity)

    def view(self) -> View:
        return View(self.context.informers)

    def informers(self) -> Informers:
        return self.context.informers
