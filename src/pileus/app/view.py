"""What a provider may see and use of the cluster: its door for controllers of its own."""

from dataclasses import dataclass

from pileus.app.informers import BY_UID, SharedInformers
from pileus.app.work import Post
from pileus.cloud.errors import Unsupported
from pileus.kube.access import Access as KubeAccess
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import Node, Service
from pileus.kube.store import NamespacedName


@dataclass(frozen=True, slots=True)
class View:
    """Nodes and Services as the manager's own informers have them."""

    shared: SharedInformers

    def node(self, name: str) -> Node | None:
        return self.shared.nodes().store.get(NamespacedName("", name))

    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.shared.nodes().store.list())

    def service(self, uid: str) -> Service | None:
        return next(iter(self.shared.services().store.by_index(BY_UID, uid)), None)

    def services(self) -> tuple[Service, ...]:
        return tuple(self.shared.services().store.list())


@dataclass(frozen=True, slots=True)
class Access:
    """The `ClusterAccess` that a provider gets when this process leads."""

    post: Post

    def client(self, identity: str) -> Client:
        return self.post.clients.controller(identity, fence=self.post.fence)

    def config(self, identity: str) -> KubeAccess:
        """Errors: `Unsupported` where nothing may be written, for with it anything could be."""
        if self.post.config.dry_run:
            raise Unsupported(
                "a plan or dry run does not hand out credentials to the cluster, since whoever has "
                "them could write; the provider has to use the client that it is given"
            )
        return self.post.clients.access_of(identity)

    def view(self) -> View:
        return View(self.post.informers)

    def informers(self) -> SharedInformers:
        return self.post.informers
