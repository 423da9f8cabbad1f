"""Claims from snapshots and clones on a real API server, with and without the snapshot kinds."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import Api
from tests.real.local_cloud import LocalCloud
from tests.real.manager import Lab, eventually, running
from tests.real.test_volumes import CLAIMS, FLAGS, api, binding, claim, phase, volumes

__all__ = ("api",)

GROUP = "snapshot.storage.k8s.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SNAPSHOTS = f"/apis/{GROUP}/v1/namespaces/default/volumesnapshots"
CONTENTS = f"/apis/{GROUP}/v1/volumesnapshotcontents"
EVENTS = "/api/v1/namespaces/default/events"
SOURCE = {"apiGroup": GROUP, "kind": "VolumeSnapshot", "name": "copy"}
DRIVER = "local.csi.pileus.dev"


def definition(kind: str, plural: str, scope: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": approved},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


@pytest.fixture
def kinds(api: Api) -> Iterator[None]:
    """Removes the kinds after the test."""
    yield
    for plural in ("volumesnapshots", "volumesnapshotcontents"):
        api.delete(f"{CRDS}/{plural}.{GROUP}")
    eventually("no snapshots are served", lambda: api.get(SNAPSHOTS).status == 404)


def install(api: Api) -> None:
    for kind, scope in (("VolumeSnapshot", "Namespaced"), ("VolumeSnapshotContent", "Cluster")):
        made = api.post(CRDS, definition(kind, f"{kind.lower()}s", scope))
        assert made.status == 201, made
    for path in (SNAPSHOTS, CONTENTS):
        eventually(path, lambda path=path: api.get(path).status == 200)


def copying_claim(api: Api, name: str, source: dict[str, str]) -> None:
    size = {"requests": {"storage": "1Gi"}}
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": size}
    made = api.post(CLAIMS, {"metadata": {"name": name}, "spec": {**spec, "dataSource": source}})
    assert made.status == 201, made


def bound(api: Api, name: str) -> bool:
    return api.get(f"{CLAIMS}/{name}").body.get("status", {}).get("phase") == "Bound"


def warnings(api: Api, name: str) -> list[str]:
    return [
        each["message"]
        for each in api.get(EVENTS).body["items"]
        if each["involvedObject"].get("name") == name and each["reason"] == "ProvisioningFailed"
    ]


def snapshot_of(cloud: LocalCloud, volume: str) -> str:
    """Creates a snapshot in the cloud. Returns its ID."""
    connection = http.client.HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(cloud.socket))
    body = json.dumps({"name": "copy", "volume": volume})
    connection.request("POST", "/v1/snapshots.create", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status == 200, text
    return json.loads(text)["id"]


def publish(api: Api, handle: str) -> None:
    """The objects of the snapshot, as external-snapshotter leaves them."""
    status = {"readyToUse": True, "boundVolumeSnapshotContentName": "content"}
    made = api.post(
        SNAPSHOTS,
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "VolumeSnapshot",
            "metadata": {"name": "copy"},
            "status": status,
        },
    )
    assert made.status == 201, made
    reference = {"namespace": "default", "name": "copy", "uid": made.body["metadata"]["uid"]}
    content = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "VolumeSnapshotContent",
        "metadata": {"name": "content"},
        "spec": {"driver": DRIVER, "volumeSnapshotRef": reference},
        "status": {"snapshotHandle": handle, "readyToUse": True},
    }
    made = api.post(CONTENTS, content)
    assert made.status == 201, made


@pytest.mark.usefixtures("kinds")
def test_claims_get_copies_of_snapshots_and_of_other_claims(
    clean: ControlPlane, api: Api, lab: Lab, cloud: LocalCloud
) -> None:
    claim(api)
    copying_claim(api, "restored", SOURCE)
    copying_claim(api, "clone", {"kind": "PersistentVolumeClaim", "name": "data"})

    with running(clean, lab, *FLAGS, *cloud.flags), binding(api):
        eventually("bound", lambda: phase(api) == "Bound")
        (source,) = (each for each in volumes(cloud) if not each.get("fromVolume"))
        eventually("cloned", lambda: bound(api, "clone"))
        eventually("a warning", lambda: warnings(api, "restored"))
        assert f"the cluster has no volumesnapshots.{GROUP}" in warnings(api, "restored")[0]

        install(api)
        snapshot = snapshot_of(cloud, source["id"])
        publish(api, snapshot)
        eventually("restored", lambda: bound(api, "restored"))

    copies = [each for each in volumes(cloud) if each["id"] != source["id"]]
    assert sorted(
        (each.get("fromVolume", ""), each.get("fromSnapshot", "")) for each in copies
    ) == [
        ("", snapshot),
        (source["id"], ""),
    ]
    said = warnings(api, "restored")
    assert len(said) == len(set(said)) <= 3
