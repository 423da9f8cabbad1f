"""Nodes and instances to test with, and what the API server makes of a patch, as pure values."""

from collections.abc import Mapping, Sequence

import msgspec

from pileus.cloud.model import Address, AddressType, Instance, InstanceId
from pileus.kube.model.core_v1 import Node
from pileus.kube.patch import MergePatch, Patch, StrategicPatch
from pileus.objects.nodes import UNINITIALIZED
from pileus.testing.virtual_time import EPOCH

START = EPOCH
TAINT = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
OTHER_TAINT = {"key": "other", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}

Document = dict[str, object]


def document(
    name: str = "n1",
    *,
    taints: Sequence[object] = (TAINT,),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    addresses: Sequence[tuple[str, str]] = (("Hostname", "n1"),),
    provider_id: str = "",
    conditions: Sequence[Document] = ({"type": "Ready", "status": "True"},),
) -> Document:
    """A node as a kubelet registers it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2029-12-31T23:59:50Z",
            **({"labels": dict(labels)} if labels else {}),
            **({"annotations": dict(annotations)} if annotations else {}),
        },
        "spec": {
            **({"taints": list(taints)} if taints else {}),
            **({"providerID": provider_id} if provider_id else {}),
        },
        "status": {
            "addresses": [{"type": t, "address": a} for t, a in addresses],
            "conditions": list(conditions),
            "nodeInfo": {"systemUUID": f"uuid-{name}"},
        },
    }


def typed(document: Document) -> Node:
    return msgspec.convert(document, Node)


def node(name: str = "n1", **fields: object) -> Node:
    return typed(document(name, **fields))  # type: ignore[arg-type]


def internal(ip: str) -> Address:
    return Address(AddressType.INTERNAL_IP, ip)


def external(ip: str) -> Address:
    return Address(AddressType.EXTERNAL_IP, ip)


def instance(name: str = "n1", **fields: object) -> Instance:
    given: dict[str, object] = {
        "id": InstanceId(f"i-{name}"),
        "provider_id": f"fake://i-{name}",
        "type": "m1",
        "zone": "z1",
        "region": "r1",
        "addresses": (internal("10.0.0.1"),),
    }
    return Instance(**(given | fields))  # type: ignore[arg-type]


def patched(before: Document, patch: Patch, subresource: str) -> Document:
    """What a patch leaves of an object, as the API server understands nodes and `nodes/status`."""
    assert isinstance(patch, MergePatch | StrategicPatch)
    body = msgspec.json.decode(msgspec.json.encode(patch.body))
    touched = {"metadata", "status"} if subresource else {"metadata", "spec"}
    assert set(body) <= touched, "the API server ignores the rest, so it must not be sent"
    return merged(before, body, strategic=isinstance(patch, StrategicPatch))


def merged(before: Document, patch: Document, *, strategic: bool) -> Document:
    after = dict(before)
    for key, value in patch.items():
        present = after.get(key)
        if value is None:
            after.pop(key, None)
        elif isinstance(value, dict):
            base = present if isinstance(present, dict) else {}
            after[key] = merged(base, value, strategic=strategic)
        elif isinstance(value, list) and strategic:
            after[key] = _merged_by_type(present, value)
        else:
            after[key] = value
    return after


def _merged_by_type(present: object, patch: list[Document]) -> object:
    """Both addresses and conditions are lists with merge key `type`."""
    items = [each for each in patch if "$patch" not in each]
    if not isinstance(present, list) or not present:
        return patch  # as some servers do, directive and all: it must not be sent then
    if len(items) < len(patch):
        return items
    kept = {each["type"]: each for each in present}
    for each in items:
        kept[each["type"]] = {**kept.get(each["type"], {}), **each}
    return list(kept.values())
