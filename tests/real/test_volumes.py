"""Volumes of claims on a real API server, with the local cloud; the manager may be killed."""

import contextlib
import signal
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from pileus.testing.control_plane import ControlPlane
from pileus_lab.node_agents.volume_binder import Storage, patches
from tests.contract.api.http import MERGE, Api
from tests.real.local_cloud import LocalCloud
from tests.real.manager import QUICK_LEASE, Lab, eventually, register, running

DRIVER = "local.csi.pileus.dev"
STORAGE = "/apis/storage.k8s.io/v1"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLAIM = f"{CLAIMS}/data"
VOLUMES = "/api/v1/persistentvolumes"
ATTACHMENTS = f"{STORAGE}/volumeattachments"
FLAGS = ("--controllers=cloud-node,volume", *QUICK_LEASE)
NODE = "n1"


def bind(api: Api) -> None:
    """One round of kube-controller-manager and kubelets for volumes."""
    paths = (CLAIMS, VOLUMES, f"{STORAGE}/storageclasses")
    listed = Storage(*(api.get(path).body["items"] for path in paths))
    for patch in patches(listed):
        api.patch(patch.path, patch.body, MERGE)  # a conflict is for the next round


@contextlib.contextmanager
def binding(api: Api) -> Generator[None]:
    """Binds claims and volumes for the length of the block."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.2):
            bind(api)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


@pytest.fixture
def api(clean: ControlPlane) -> Iterator[Api]:
    found = Api.of_kubeconfig(clean.admin)
    body = {"metadata": {"name": "fast"}, "provisioner": DRIVER, "allowVolumeExpansion": True}
    found.post(f"{STORAGE}/storageclasses", body)
    yield found
    found.delete(f"{STORAGE}/storageclasses/fast")
    for path in (CLAIMS, VOLUMES, ATTACHMENTS):
        for each in found.get(path).body["items"]:
            name = each["metadata"]["name"]
            found.delete(f"{path}/{name}")
            found.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE)


def claim(api: Api) -> None:
    size = {"requests": {"storage": "1Gi"}}
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": size}
    made = api.post(CLAIMS, {"metadata": {"name": "data"}, "spec": spec})
    assert made.status == 201, made


def phase(api: Api) -> str:
    return api.get(CLAIM).body.get("status", {}).get("phase", "")


def pv(api: Api) -> dict[str, Any]:
    (found,) = api.get(VOLUMES).body["items"]
    return found


def attach(api: Api) -> None:
    source = {"persistentVolumeName": pv(api)["metadata"]["name"]}
    spec = {"attacher": DRIVER, "nodeName": NODE, "source": source}
    made = api.post(ATTACHMENTS, {"metadata": {"name": "va"}, "spec": spec})
    assert made.status == 201, made


def is_attached(api: Api) -> bool:
    return bool(api.get(f"{ATTACHMENTS}/va").body.get("status", {}).get("attached"))


def volumes(cloud: LocalCloud) -> list[dict[str, Any]]:
    return cloud.show("volumes")


def test_a_claim_is_bound_attached_grown_detached_and_reclaimed(
    clean: ControlPlane, api: Api, lab: Lab, cloud: LocalCloud
) -> None:
    cloud.pileus("instances", "create", NODE)
    register(clean, NODE)
    claim(api)

    with running(clean, lab, *FLAGS, *cloud.flags), binding(api):
        eventually("bound", lambda: phase(api) == "Bound")
        assert pv(api)["spec"]["csi"]["volumeHandle"] == volumes(cloud)[0]["id"]
        attach(api)
        eventually("attached", lambda: is_attached(api))
        assert volumes(cloud)[0].get("machine")

        api.patch(CLAIM, {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}, MERGE)
        eventually("grown", lambda: api.get(CLAIM).body["status"]["capacity"] == {"storage": "3Gi"})
        assert volumes(cloud)[0]["sizeGib"] == 3

        api.delete(f"{ATTACHMENTS}/va")
        eventually("detached", lambda: api.get(f"{ATTACHMENTS}/va").status == 404)
        assert not volumes(cloud)[0].get("machine")
        api.delete(CLAIM)
        eventually("reclaimed", lambda: not volumes(cloud))
        eventually("no PersistentVolume", lambda: not api.get(VOLUMES).body["items"])


def test_a_manager_that_is_killed_on_the_way_leaves_one_volume_and_the_next_continues(
    clean: ControlPlane, api: Api, lab: Lab, cloud: LocalCloud
) -> None:
    cloud.pileus("instances", "create", NODE)
    register(clean, NODE)
    with running(clean, lab, *FLAGS, *cloud.flags) as first:
        first.wait_leading()
        claim(api)
        bind(api)
        eventually("created", lambda: volumes(cloud))
        first.end(signal.SIGKILL)

    with running(clean, lab, *FLAGS, *cloud.flags), binding(api):
        eventually("bound", lambda: phase(api) == "Bound")
        assert len(volumes(cloud)) == 1
        api.delete(CLAIM)
        eventually("reclaimed", lambda: not volumes(cloud))
