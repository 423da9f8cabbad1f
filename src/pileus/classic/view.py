"""The cluster as ported providers need it: whole Node and Service objects."""

from collections.abc import Sequence

from pileus.cloud.errors import Unavailable
from pileus.kube.model.core_v1 import Node, Service
from pileus.runtime.cluster_access import ClusterView


class LateView:
    """A view that is bound while this process is the leader."""

    def __init__(self) -> None:
        self._view: ClusterView | None = None

    def bind(self, view: ClusterView | None) -> None:
        self._view = view

    def node(self, name: str) -> Node | None:
        return self._bound().node(name)

    def nodes(self) -> Sequence[Node]:
        return self._bound().nodes()

    def service(self, uid: str) -> Service | None:
        return self._bound().service(uid)

    def services(self) -> Sequence[Service]:
        return self._bound().services()

    def service_if_leading(self, uid: str) -> Service | None:
        """As `service`; None also while this process is not the leader."""
        return None if self._view is None else self._view.service(uid)

    def _bound(self) -> ClusterView:
        if self._view is None:
            raise Unavailable("the cluster cannot be read: this process is not the leader")
        return self._view
