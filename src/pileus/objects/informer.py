"""The part of an informer of nodes that controllers need; tests give others."""

from typing import Protocol

from pileus.kube.informer import Handler
from pileus.kube.model.core_v1 import Node
from pileus.kube.store import Store


class NodeInformer(Protocol):
    @property
    def store(self) -> Store[Node]: ...
    async def wait_synced(self) -> None: ...
    def subscribe(self, handler: Handler[Node]) -> None: ...
