"""Bytes that the manager keeps of each object, counted by the allocator of Python, not by time."""

import gc
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from pileus.kube.codec import codec_of
from pileus.kube.model.core_v1 import Node
from pileus.kube.store import Added, Table
from pileus.runtime.informers import UID_INDEX
from pileus.telemetry.journal import Call, Entry, Journal, Line, Subject, Write

COUNT = 300
NODE_BYTES = 2800
"""Of a node in the store; 2,490 when this was written, 4,120 without shared texts."""
ENTRY_BYTES = 2400
"""Of an entry in the journal; 2,130 when this was written, 4,840 if it is kept as values too."""
START = datetime(2026, 1, 1, tzinfo=UTC)


def kept(make: Callable[[], object]) -> float:
    """Returns the bytes that the result of `make` keeps, by object."""
    make()  # what is created once, such as decoders
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = make()
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
        del result
    finally:
        tracemalloc.stop()
    return used / COUNT


def condition(kind: str, time: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": "False",
        "reason": f"Kubelet{kind}",
        "message": f"kubelet reports {kind}",
        "lastHeartbeatTime": time,
        "lastTransitionTime": time,
    }


def document(number: int) -> dict[str, object]:
    """A node as a kubelet and the manager leave it."""
    name, time = f"node-{number}", "2026-11-17T15:00:00Z"
    types = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    region = {"topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "z1"}
    old = {f"failure-domain.beta.{key.partition('.')[2]}": "x" for key in region}
    return {
        "metadata": {
            "name": name,
            "uid": f"{number:08x}-aaaa-bbbb-cccc-000000000000",
            "resourceVersion": str(1000 + number),
            "creationTimestamp": time,
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "node.kubernetes.io/instance-type": "m1.large",
                **region,
                **old,
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": f"cloud://{number}", "podCIDR": f"10.{number // 250}.0.0/24"},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": f"10.0.{number // 250}.{number % 250}"},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [condition(each, time) for each in types],
            "nodeInfo": {"systemUUID": f"{number:08x}-0000", "kubeletVersion": "v1.37.1"},
            "images": [{"names": [f"image-{k}"], "sizeBytes": k} for k in range(20)],
        },
    }


def test_bytes_of_a_node_in_the_store() -> None:
    items = [document(number) for number in range(COUNT)]
    page = msgspec.json.encode({"metadata": {"resourceVersion": "7"}, "items": items})

    def stored() -> Table[Node]:
        table = Table[Node](UID_INDEX)
        for node in codec_of(Node).page(page).items:
            table.apply(Added(node))
        return table

    assert kept(stored) <= NODE_BYTES


def entry(number: int) -> Entry:
    name, at = f"node-{number}", START + timedelta(seconds=number)
    path = f"PATCH /api/v1/nodes/{name}"
    return Entry(
        at=at,
        first=at,
        object=Subject(kind="Node", name=name, uid=f"uid-{number}"),
        controller="cloud-node-controller",
        seconds=0.25,
        observed=f"machine cloud://{number}",
        plan=tuple(
            Line(
                place="cluster",
                action="update",
                summary=f"initialize node {name}",
                details=tuple(f"label topology.kubernetes.io/{k} = {name}-{k}" for k in range(6)),
            )
            for _ in range(2)
        ),
        calls=(Call(method="instances.find", items=500, started=0.0, seconds=0.05),),
        writes=(
            Write(request=f"{path}/status", started=0.1, seconds=0.1, status=200, id=f"a{number}"),
            Write(request=path, started=0.2, seconds=0.1, status=200, id=f"b{number}"),
        ),
        result="done",
    )


def test_bytes_of_an_entry_in_the_journal() -> None:
    def filled() -> Journal:
        journal = Journal(START)
        for number in range(COUNT):
            journal.add(entry(number))
        return journal

    assert kept(filled) <= ENTRY_BYTES
