"""CSI sidecars of the Kubernetes project with `pileus csi`, with the rights of its manifests.

external-provisioner, external-resizer and external-snapshotter run for real, as the account
`pileus-csi-controller`. This test stands in for kube-controller-manager, scheduler and kubelet.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import MERGE, Api
from tests.real.local_cloud import LocalCloud
from tests.real.manager import PROGRAM, eventually
from tests.real.test_volumes import CLAIMS, DRIVER, STORAGE, VOLUMES, binding

FOLDER = os.environ.get("PILEUS_CSI_SIDECARS", "")
SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots"
CLASSES = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODE = "n1"
ZONE = "topology.kubernetes.io/zone"
NAMESPACE = "kube-system"
SIDECARS = ("csi-provisioner", "csi-resizer", "csi-snapshotter")
RIGHTS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
APPLIED = {*RIGHTS, "CSIDriver", "StorageClass", "VolumeSnapshotClass"}
LIMIT = 90.0
pytestmark = pytest.mark.skipif(
    not FOLDER, reason="no CSI sidecars: run `make test-csi-sidecars`, which builds them once"
)


def printed() -> list[dict[str, Any]]:
    """The objects that `pileus manifests` prints for the driver."""
    command = (PROGRAM.parent / "pileus", "manifests", "--cloud-provider=local")
    more = ("--csi", "--csi-snapshots")
    done = subprocess.run((*command, *more), capture_output=True, text=True, check=True)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def arguments(objects: list[dict[str, Any]], sidecar: str) -> list[str]:
    """The flags that the Deployment gives to a sidecar."""
    (made,) = (
        each
        for each in objects
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "pileus-csi-controller"
    )
    containers = made["spec"]["template"]["spec"]["containers"]
    (found,) = (each for each in containers if each["name"] == sidecar)
    return found["args"]


@contextlib.contextmanager
def process(folder: Path, name: str, *command: str | Path) -> Generator[Path]:
    """Run a process for the length of the block. Yields its log."""
    log = folder / f"{name}.log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as running:
        try:
            yield log
        finally:
            running.terminate()


def soon(what: str, holds: Callable[[], Any]) -> Any:
    return eventually(what, holds, LIMIT)


@pytest.fixture
def objects(clean: ControlPlane) -> Iterator[list[dict[str, Any]]]:
    """The printed objects; rights, classes and the CSIDriver are on the cluster."""
    made = printed()
    crds = Path(FOLDER) / "crds"
    api = Api.of_kubeconfig(clean.admin)
    clean.kubectl("apply", f"--kustomize={crds}")
    soon("snapshots are served", lambda: api.get(CLASSES).status == 200)
    text = yaml.safe_dump_all(each for each in made if each["kind"] in APPLIED)
    clean.kubectl("apply", "--filename=-", stdin=text)
    yield made
    _delete_all(api)
    clean.kubectl("delete", "--ignore-not-found", "--wait=false", "--filename=-", stdin=text)
    clean.kubectl("delete", "--ignore-not-found", "--wait=false", f"--kustomize={crds}")
    soon("no snapshots are served", lambda: api.get(CLASSES).status == 404)


def _delete_all(api: Api) -> None:
    contents = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
    for path in (SNAPSHOTS, contents, CLAIMS, VOLUMES, f"{STORAGE}/csinodes", "/api/v1/nodes"):
        for each in api.get(path).body.get("items", ()):
            name = each["metadata"]["name"]
            api.delete(f"{path}/{name}")
            api.patch(f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE)


@contextlib.contextmanager
def driver(
    cluster: ControlPlane, cloud: LocalCloud, objects: list[dict[str, Any]], folder: Path
) -> Generator[dict[str, Path]]:
    """The driver and its sidecars, with the token of the account. Yields their logs."""
    account = ("pileus-csi-controller", f"--namespace={NAMESPACE}")
    token = cluster.kubectl("create", "token", *account).strip()
    kubeconfig = cluster.token_user("csi-controller", token)
    socket = folder / "csi.sock"
    serve = ("csi", "--mode=controller", f"--endpoint=unix://{socket}", *cloud.flags)
    with contextlib.ExitStack() as stack:
        logs: dict[str, Path] = {}

        def start(name: str, *command: str | Path) -> None:
            logs[name] = stack.enter_context(process(folder, name, *command))

        pileus = PROGRAM.parent / "pileus"
        start("driver", pileus, *serve, f"--kubeconfig={kubeconfig}")
        soon("the driver serves", socket.exists)
        outside = (f"--kubeconfig={kubeconfig}", f"--leader-election-namespace={NAMESPACE}")
        for name in SIDECARS:
            given = [
                each.replace("/csi/csi.sock", str(socket)) for each in arguments(objects, name)
            ]
            start(name, Path(FOLDER) / name, *given, *outside)
        controller = Path(FOLDER) / "snapshot-controller"
        start("snapshot-controller", controller, f"--kubeconfig={cluster.admin}")
        yield logs


def register(api: Api, machine: dict[str, Any]) -> None:
    """The node as its kubelet and node-driver-registrar show it."""
    labels = {ZONE: machine["zone"], "kubernetes.io/hostname": NODE}
    node = {"metadata": {"name": NODE, "labels": labels}}
    assert api.post("/api/v1/nodes", node).status == 201
    own = {"name": DRIVER, "nodeID": machine["id"], "topologyKeys": [ZONE]}
    csi_node = {"metadata": {"name": NODE}, "spec": {"drivers": [own]}}
    assert api.post(f"{STORAGE}/csinodes", csi_node).status == 201


def claim(api: Api, name: str, **fields: Any) -> None:
    """A claim with a pod that the scheduler has placed on the node."""
    spec = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        **fields,
    }
    notes = {"volume.kubernetes.io/selected-node": NODE}
    body = {"metadata": {"name": name, "annotations": notes}, "spec": spec}
    made = api.post(CLAIMS, body)
    assert made.status == 201, made


def snapshot(api: Api, name: str, of_claim: str) -> None:
    source = {"persistentVolumeClaimName": of_claim}
    spec = {"volumeSnapshotClassName": "local", "source": source}
    kind = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"}
    made = api.post(SNAPSHOTS, {**kind, "metadata": {"name": name}, "spec": spec})
    assert made.status == 201, made


def is_bound(api: Api, name: str) -> bool:
    return api.get(f"{CLAIMS}/{name}").body.get("status", {}).get("phase") == "Bound"


def size(api: Api, name: str) -> str:
    volume = api.get(f"{CLAIMS}/{name}").body["spec"]["volumeName"]
    return api.get(f"{VOLUMES}/{volume}").body["spec"]["capacity"]["storage"]


def test_claims_are_served_grown_copied_and_deleted_by_the_sidecars(
    clean: ControlPlane, cloud: LocalCloud, objects: list[dict[str, Any]], tmp_path: Path
) -> None:
    api = Api.of_kubeconfig(clean.admin)
    cloud.pileus("instances", "create", NODE)
    (machine,) = cloud.show("instances")
    register(api, machine)

    with driver(clean, cloud, objects, tmp_path) as logs, binding(api):
        claim(api, "data")
        soon("provisioned", lambda: is_bound(api, "data"))
        (volume,) = cloud.show("volumes")
        uid = api.get(f"{CLAIMS}/data").body["metadata"]["uid"]
        assert (volume["mark"]["owner"], volume["zone"]) == (f"pvc-{uid}", machine["zone"])

        grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        api.patch(f"{CLAIMS}/data", grown, MERGE)
        soon("grown", lambda: size(api, "data") == "2Gi")

        snapshot(api, "copy", "data")
        shown = f"{SNAPSHOTS}/copy"
        soon("snapshot", lambda: api.get(shown).body.get("status", {}).get("readyToUse"))

        source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "copy"}
        more = {"requests": {"storage": "2Gi"}}
        claim(api, "restored", dataSource=source, resources=more)
        soon("restored", lambda: is_bound(api, "restored"))
        assert len([one for one in cloud.show("volumes") if one.get("fromSnapshot")]) == 1

        for path in (f"{CLAIMS}/restored", shown, f"{CLAIMS}/data"):
            api.delete(path)
        soon("deleted", lambda: not cloud.show("volumes"))
        refused = [name for name in SIDECARS if "forbidden" in logs[name].read_text().lower()]
        assert refused == [], "a right is missing in the manifests"
