"""Claims, PersistentVolumes and attachments, for tests of the rights of volume controllers."""

import asyncio
from typing import Any, Protocol

from pileus_lab.node_agents.volume_binder import Storage, patches
from tests.unit.controllers.volume.snapshot_kinds import GROUP

DRIVER = "local.csi.pileus.dev"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class Admin(Protocol):
    """Asks the API server as an administrator, and returns its answer."""

    def __call__(self, method: str, path: str, body: object = None) -> Any: ...


def bind(admin: Admin) -> None:
    """One round of kube-controller-manager and kubelets for volumes."""
    paths = (CLAIMS, VOLUMES, "/apis/storage.k8s.io/v1/storageclasses")
    for patch in patches(Storage(*(admin("GET", path)["items"] for path in paths))):
        admin("PATCH", patch.path, patch.body)


def release(admin: Admin) -> None:
    """A PersistentVolume whose claim is deleted, and whose volume is missing in the cloud."""
    finalizer = "external-provisioner.volume.kubernetes.io/finalizer"
    _add_volume(admin, "old", "Delete", finalizers=[finalizer])
    admin("PATCH", f"{VOLUMES}/old/status", {"status": {"phase": "Released"}})


def detach(admin: Admin) -> None:
    """A PersistentVolume whose attachment is being deleted."""
    _add_volume(admin, "moved", "Retain")
    spec = {"attacher": DRIVER, "nodeName": "n0", "source": {"persistentVolumeName": "moved"}}
    metadata = {"name": "moved", "finalizers": ["external-attacher/local-csi-pileus-dev"]}
    admin("POST", ATTACHMENTS, {"metadata": metadata, "spec": spec})
    admin("DELETE", f"{ATTACHMENTS}/moved")


def restore(admin: Admin) -> None:
    """A claim from a snapshot that the cloud does not have."""
    made = {"metadata": {"name": "copied"}, "provisioner": DRIVER}
    admin("POST", "/apis/storage.k8s.io/v1/storageclasses", made)
    source = {"apiGroup": GROUP, "kind": "VolumeSnapshot", "name": "copy"}
    spec = {
        "storageClassName": "copied",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": source,
    }
    annotations = {"volume.kubernetes.io/storage-provisioner": DRIVER}
    metadata = {"name": "restored", "annotations": annotations}
    admin("POST", CLAIMS, {"metadata": metadata, "spec": spec})


def _add_volume(admin: Admin, name: str, policy: str, **metadata: object) -> None:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy,
        "csi": {"driver": DRIVER, "volumeHandle": f"vol-{name}"},
        "claimRef": {"namespace": "default", "name": name, "uid": "0"},
    }
    annotations = {"pv.kubernetes.io/provisioned-by": DRIVER}
    metadata = {"name": name, "annotations": annotations, **metadata}
    admin("POST", VOLUMES, {"metadata": metadata, "spec": spec})


async def use_volumes(admin: Admin) -> None:
    """A claim gets a volume, which is attached, grows, is detached and deleted."""
    body: dict[str, Any] = {"metadata": {"name": "fast"}, "provisioner": DRIVER}
    body |= {"allowVolumeExpansion": True, "parameters": {"zone": "local-1a"}}
    admin("POST", "/apis/storage.k8s.io/v1/storageclasses", body)
    size = {"requests": {"storage": "1Gi"}}
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": size}
    made = admin("POST", CLAIMS, {"metadata": {"name": "data"}, "spec": spec})
    await _bound(admin)
    source = {"persistentVolumeName": f"pvc-{made['metadata']['uid']}"}
    spec = {"attacher": DRIVER, "nodeName": "n0", "source": source}
    admin("POST", ATTACHMENTS, {"metadata": {"name": "va"}, "spec": spec})
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    admin("PATCH", f"{CLAIMS}/data", larger)
    await _bound(admin)
    admin("DELETE", f"{ATTACHMENTS}/va")
    admin("DELETE", f"{CLAIMS}/data")
    await _bound(admin)
    left = [each["metadata"]["name"] for each in admin("GET", VOLUMES)["items"]]
    assert not [name for name in left if name == "old" or name.startswith("pvc-")]


async def _bound(admin: Admin) -> None:
    for _ in range(10):
        await asyncio.sleep(10)
        bind(admin)
