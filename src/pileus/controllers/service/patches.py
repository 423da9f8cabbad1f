"""The writes to a Service as the API server takes them, through `services/status`. Pure."""

import msgspec

from pileus.controllers.service.plan import FINALIZER, Finalizer, Write
from pileus.controllers.service.status import CONDITION
from pileus.kube.model.core_v1 import Service
from pileus.kube.patch import StrategicPatch


def patch_of(service: Service, write: Write) -> StrategicPatch:
    """One strategic merge patch: foreign finalizers and conditions are merged, never lost.

    It names the Service by its UID. To set the finalizer it also names the version that was seen
    not to be on its way out: a deletion that came in between makes it fail with a conflict.
    """
    metadata: dict[str, object] = {"uid": service.metadata.uid}
    match write.finalizer:
        case Finalizer.ADD:
            present = service.metadata.finalizers or ()
            metadata["finalizers"] = [FINALIZER]
            metadata["$setElementOrder/finalizers"] = [*present, FINALIZER]
            metadata["resourceVersion"] = service.metadata.resource_version
        case Finalizer.REMOVE:
            metadata["$deleteFromPrimitiveList/finalizers"] = [FINALIZER]
        case None:
            pass
    status = _status(write)
    return StrategicPatch({"metadata": metadata} | ({"status": status} if status else {}))


def _status(write: Write) -> dict[str, object]:
    status: dict[str, object] = {}
    if write.ingress is not None:
        ingress = [msgspec.to_builtins(each) for each in write.ingress]
        status["loadBalancer"] = {"ingress": ingress or None}
    if write.condition is not None:
        status["conditions"] = [_condition(write)]
    elif write.drop_condition:
        status["conditions"] = [{"$patch": "delete", "type": CONDITION}]
    return status


def _condition(write: Write) -> object:
    """All fields, also empty ones: the API wants every one of them."""
    assert write.condition is not None  # noqa: S101 -- as its caller has seen
    return {"message": "", **msgspec.to_builtins(write.condition)}
