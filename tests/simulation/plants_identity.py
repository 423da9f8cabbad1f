"""Defects of who is meant: an object is known by its name, whoever has it by now."""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from msgspec.structs import replace as changed

from pileus.controllers.lifecycle import controller as lifecycle
from pileus.controllers.node import controller as node
from pileus.controllers.node import observation as node_observation
from pileus.controllers.route import controller as route
from pileus.controllers.service import observation as service
from pileus.controllers.service.desired import EVERY_NAMESPACE, Desires
from pileus.controllers.service.notes import DeletedServices
from pileus.controllers.service.reconciler import ServiceReconciler
from pileus.controllers.service.status import Finalizer, Write
from pileus.dataclass import replace
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.objects.cluster_nodes import ClusterNodes, NodeWriter
from pileus.runtime.events import EventRecorder
from pileus.runtime.reconcile import DONE
from pileus_lab.local import balancer_plan
from tests.simulation.planting import Patch


def every_namespace_is_trusted() -> Iterable[Patch]:
    sound = Desires.wish

    def wish(self: Desires, *arguments: Any) -> Any:
        return sound(replace(self, trusted=frozenset({EVERY_NAMESPACE})), *arguments)

    yield Desires, "wish", wish


def texts_are_quoted_as_they_are() -> Iterable[Patch]:
    def quoted(text: str) -> str:
        return f'"{text}"'

    yield balancer_plan, "quoted", quoted


def nodes_may_claim_any_machine() -> Iterable[Patch]:
    def accepted(*_: object) -> None:
        return None

    yield node_observation, "refusal", accepted


def nodes_are_deleted_by_name() -> Iterable[Patch]:
    async def delete(self: ClusterNodes[Any], node: Any) -> None:
        await self._client.delete(NODES, node.metadata.name)

    yield ClusterNodes, "delete", delete


def nodes_are_initialized_by_name() -> Iterable[Patch]:
    return _written_by_name(node, "patch_of")


def nodes_are_marked_by_name() -> Iterable[Patch]:
    return _written_by_name(lifecycle, "patch_of")


def routes_are_told_by_name() -> Iterable[Patch]:
    return _written_by_name(route, "condition_patch")


def nodes_are_read_again_by_name() -> Iterable[Patch]:
    """After a conflict, whoever has the name gets what was found for the one before it."""

    async def newest(self: NodeWriter[Any], node: Any) -> Any:
        return await self._nodes.read(node.metadata.name)

    yield NodeWriter, "_newest", newest


def services_are_written_by_name() -> Iterable[Patch]:
    sound = service.patch_of
    yield service, "patch_of", lambda seen, write: _without_uid(sound(seen, write))


def services_are_read_by_name() -> Iterable[Patch]:
    async def read(self: Any, seen: Any) -> Any:
        metadata = seen.metadata
        found = await self._client.get(SERVICES, metadata.name, namespace=metadata.namespace)
        return self._written.note(metadata.uid, found)

    yield service.ClusterServices, "read", read


def services_are_released_by_name() -> Iterable[Patch]:
    """Who cleans up after a Service takes the finalizer off whatever has its name."""
    sound = ServiceReconciler._reconcile

    async def reconcile(self: Any, key: str) -> Any:
        deleted = self._parts.deleted.find(key)
        result = await sound(self, key)
        cluster = self._parts.cluster
        named = [
            one for one in cluster.services() if deleted and _is_named_as(one, deleted.service)
        ]
        for one in named if result is DONE else ():
            await cluster.write(one, Write(finalizer=Finalizer.REMOVE))
        return result

    yield ServiceReconciler, "_reconcile", reconcile
    yield DeletedServices, "former", lambda self, service: None


def events_are_told_by_name() -> Iterable[Patch]:
    sound = EventRecorder.record

    def record(self: EventRecorder, about: Any, kind: str, reason: str, message: str) -> None:
        sound(self, changed(about, uid=""), kind, reason, message)

    yield EventRecorder, "record", record


def _written_by_name(module: ModuleType, name: str) -> Iterable[Patch]:
    sound = getattr(module, name)

    def patch_of(seen: Any, write: Any) -> Any:
        patch, subresource = sound(seen, write)
        return _without_uid(patch), subresource

    yield module, name, patch_of


def _without_uid(patch: Any) -> Any:
    metadata = {key: value for key, value in patch.body["metadata"].items() if key != "uid"}
    return type(patch)({**patch.body, "metadata": metadata})


def _is_named_as(one: Any, other: Any) -> bool:
    return (one.metadata.namespace, one.metadata.name) == (
        other.metadata.namespace,
        other.metadata.name,
    )
