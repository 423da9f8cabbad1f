"""The writes to a Service as the API server takes them, through `services/status`. Pure."""

import msgspec

from pileus.controllers.service.annotations import ENSURED
from pileus.controllers.service.plan import FINALIZER, Finalizer, Write
from pileus.kube.model.core_v1 import Service
from pileus.kube.model.meta import Condition
from pileus.kube.patch import StrategicPatch


def patch_of(service: Service, write: Write) -> StrategicPatch:
    """One strategic merge patch: foreign finalizers and conditions are merged, never lost.

    It names the Service by its UID; and, where it must, the version that was seen: a deletion or
    another's claim that came in between makes it fail with a conflict.
    """
    metadata: dict[str, object] = {"uid": service.metadata.uid}
    match write.finalizer:
        case Finalizer.ADD:
            present = service.metadata.finalizers or ()
            metadata["finalizers"] = [FINALIZER]
            metadata["$setElementOrder/finalizers"] = [*present, FINALIZER]
        case Finalizer.REMOVE:
            metadata["$deleteFromPrimitiveList/finalizers"] = [FINALIZER]
        case None:
            pass
    if write.record is not None:
        metadata["annotations"] = {ENSURED: write.record}
    if write.only_this_version:
        metadata["resourceVersion"] = service.metadata.resource_version
    status = _status(write)
    return StrategicPatch({"metadata": metadata} | ({"status": status} if status else {}))


def _status(write: Write) -> dict[str, object]:
    status: dict[str, object] = {}
    if write.ingress is not None:
        ingress = [msgspec.to_builtins(each) for each in write.ingress]
        status["loadBalancer"] = {"ingress": ingress or None}
    told = [_condition(each) for each in (write.condition, write.served) if each is not None]
    dropped = [{"$patch": "delete", "type": kind} for kind in write.drops]
    if told or dropped:
        status["conditions"] = [*told, *dropped]
    return status


def _condition(condition: Condition) -> object:
    """All fields, also empty ones: the API wants every one of them."""
    return {"message": "", **msgspec.to_builtins(condition)}
