"""The cluster as ported providers need it: they take whole Nodes and Services."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from pileus.cloud.errors import Unavailable
from pileus.kube.model.core_v1 import Node, Service


@runtime_checkable
class ClusterView(Protocol):
    """Read-only, from the informers' stores: cheap."""

    def node(self, name: str) -> Node | None: ...
    def nodes(self) -> Sequence[Node]: ...
    def service(self, uid: str) -> Service | None: ...
    def services(self) -> Sequence[Service]: ...


class LateView:
    """A view that comes into being with leadership, after the provider has been connected."""

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
        """As `service`; None also while this process does not lead."""
        return None if self._view is None else self._view.service(uid)

    def _bound(self) -> ClusterView:
        if self._view is None:
            raise Unavailable("the cluster is not in view: this process does not lead")
        return self._view
