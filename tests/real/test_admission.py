"""Webhooks that the real API server asks, with exactly the rights and objects of the manifests."""

import json
import ssl
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pileus.admission.certificates import OVERLAP, Step, Stored, performed
from pileus.app.settings import TABLE
from pileus.clock import SystemClock
from pileus.deployment.commented import documents
from pileus.deployment.flags import OWN, chosen
from pileus.deployment.webhooks import webhook_objects
from pileus.settings.flags import Table
from pileus.settings.sources import gather
from pileus.testing.control_plane import ControlPlane, free_ports
from tests.contract.api.http import Answer, Api
from tests.real.access import ACCOUNT, GROUPS, granted
from tests.real.local_cloud import LocalCloud
from tests.real.manager import QUICK_LEASE, Lab, Manager, eventually, running

FLAGS = (
    "--webhooks=*",
    "--feature-gates=CloudControllerManagerWebhook=true",
    "--controllers=persistentvolume-label-controller,webhook-certificate-controller",
)
NAME = "cloud-controller-manager-webhook"
SECRET = f"/api/v1/namespaces/kube-system/secrets/{NAME}"
ZONE = "topology.kubernetes.io/zone"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"


class Bed:
    def __init__(self, cluster: ControlPlane, cloud: LocalCloud, folder: Path) -> None:
        self.cluster, self.cloud, self.folder = cluster, cloud, folder
        self.api = Api.of_kubeconfig(cluster.admin)
        self.port = free_ports(1)[0]
        self.kubeconfig = cluster.user(ACCOUNT, groups=GROUPS)
        self.names = 0

    @property
    def flags(self) -> tuple[str, ...]:
        return (
            *self.cloud.flags,
            *FLAGS,
            f"--webhook-secure-port={self.port}",
            "--webhook-bind-address=127.0.0.1",
            "--permit-port-sharing",
        )

    @contextmanager
    def manager(self, name: str = "lab", *flags: str) -> Generator[Manager]:
        lab = Lab(self.folder / name)
        with running(self.cluster, lab, *self.flags, *flags, kubeconfig=self.kubeconfig) as it:
            yield it

    def manifests(self) -> str:
        """The objects that register the webhooks, as the command prints them."""
        line = (
            *("--external", f"--webhook-url=https://127.0.0.1:{self.port}"),
            *("--cloud-provider=openstack", *FLAGS),
        )
        values = gather(Table((OWN, *TABLE.groups)), "pileus manifests", line, {}).values
        return documents(webhook_objects(chosen(values, lambda path: Path(path).read_bytes())))

    def create(self, handle: str, driver: str = "local.csi.pileus.dev", **labels: str) -> Any:
        """Create a PersistentVolume, and return what the API server stored."""
        self.names += 1
        spec = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": driver, "volumeHandle": handle},
        }
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv{self.names}", "labels": labels},
            "spec": spec,
        }
        made = self.api.post("/api/v1/persistentvolumes", body)
        assert made.status == 201, made
        return made.body

    def zone_of(self, name: str) -> str | None:
        found = self.api.get(f"/api/v1/persistentvolumes/{name}")
        assert found.status == 200, found
        return found.body["metadata"].get("labels", {}).get(ZONE)

    def is_labelled_at_once(self, handle: str) -> bool:
        return ZONE in self.create(handle)["metadata"].get("labels", {})

    def stored(self) -> Stored:
        data = self.api.get(SECRET).body["data"]
        return Stored.of({key: b64decode(value) for key, value in data.items()})


@pytest.fixture
def bed(clean: ControlPlane, cloud: LocalCloud, tmp_path: Path) -> Iterator[Bed]:
    made = Bed(clean, cloud, tmp_path)
    text = made.manifests()
    clean.kubectl("apply", "--filename=-", stdin=text)
    try:
        with granted(clean, *FLAGS):
            yield made
    finally:
        clean.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=text)
        made.api.patch(CLAIM, {"metadata": {"finalizers": None}})
        made.api.delete(CLAIM)
        for number in range(1, made.names + 1):
            path = f"/api/v1/persistentvolumes/pv{number}"
            made.api.patch(path, {"metadata": {"finalizers": None}})
            made.api.delete(path)


def volume(cloud: LocalCloud, name: str, size: int = 10) -> str:
    cloud.pileus("volumes", "create", name, str(size))
    return next(each["id"] for each in cloud.show("volumes") if each["name"] == name)


def test_a_volume_is_labelled_while_it_is_created(bed: Bed) -> None:
    handle = volume(bed.cloud, "data")

    with bed.manager() as manager:
        eventually("asked", lambda: bed.is_labelled_at_once(handle))
        made = bed.create(handle, region="mine")
        foreign = bed.create(handle, driver="ebs.csi.aws.com")
        refused = manager.metric("rest_client_requests_total", code="403")
        served = manager.metric("cloud_provider_webhook_request_total", code="200")

    assert made["metadata"]["labels"]["region"] == "mine"
    terms = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    zone = made["metadata"]["labels"][ZONE]
    assert {"key": ZONE, "operator": "In", "values": [zone]} in terms[0]["matchExpressions"]
    assert "nodeAffinity" not in foreign["spec"]
    assert ZONE not in foreign["metadata"].get("labels", {})
    assert refused == 0, manager.story()
    assert served >= 3


def test_a_manager_that_is_down_blocks_nothing_and_labels_are_added_later(bed: Bed) -> None:
    handle = volume(bed.cloud, "data")
    with bed.manager("first"):
        eventually("asked", lambda: bed.is_labelled_at_once(handle))

    late = bed.create(handle)["metadata"]["name"]

    assert bed.zone_of(late) is None
    with bed.manager("second", *QUICK_LEASE):
        eventually("labelled by the controller", lambda: bed.zone_of(late))


def bind(bed: Bed, handle: str, *, asked: str, capacity: str) -> None:
    """A claim that is bound to a new PersistentVolume, as if it had been resized before."""
    name = bed.create(handle)["metadata"]["name"]
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "volumeName": name,
        "storageClassName": "fast",
        "resources": {"requests": {"storage": asked}},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    made = bed.api.post(CLAIM.removesuffix("/data"), body | {"spec": spec})
    assert made.status == 201, made
    status = {"phase": "Bound", "capacity": {"storage": capacity}}
    bound = bed.api.patch(f"{CLAIM}/status", {"status": status})
    assert bound.status == 200, bound


def resized(bed: Bed, size: str) -> Answer:
    return bed.api.patch(CLAIM, {"spec": {"resources": {"requests": {"storage": size}}}})


def lets_claims_shrink(bed: Bed) -> bool:
    """Whether a claim may ask for less again, down to its capacity: API servers from 1.32 on.

    Older ones refuse every shrink themselves, before they ask a webhook.
    """
    return int(bed.api.get("/version").body["minor"]) >= 32


@pytest.fixture
def fast(bed: Bed) -> Iterator[None]:
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "local.csi.pileus.dev",
        "allowVolumeExpansion": True,
    }
    bed.cluster.kubectl("apply", "--filename=-", stdin=json.dumps(body))
    yield
    bed.cluster.kubectl("delete", "storageclass", "fast")


@pytest.mark.usefixtures("fast")
def test_a_shrink_below_the_size_of_the_volume_is_refused_with_the_smallest_size(bed: Bed) -> None:
    handle = volume(bed.cloud, "data", 20)
    with bed.manager():
        eventually("asked", lambda: bed.is_labelled_at_once(handle))
        bind(bed, handle, asked="30Gi", capacity="10Gi")

        shrunk = resized(bed, "15Gi")
        taken_back = resized(bed, "25Gi")
        grown = resized(bed, "40Gi")
    unchecked = resized(bed, "50Gi")

    if not lets_claims_shrink(bed):
        for answer in (shrunk, taken_back):
            assert answer.status == 422, answer
            assert "field can not be less than previous value" in answer.body["message"]
        assert (grown.status, unchecked.status) == (200, 200)
        return
    assert shrunk.status == 403
    assert shrunk.body["message"] == (
        f'admission webhook "persistentvolumeclaim-resize.webhooks.pileus.dev" denied the request: '
        f"volume {handle} of claim default/data has 20 GiB in cloud local, and volumes cannot "
        "shrink. Fix: request 20Gi or more"
    )
    assert taken_back.status == 200, taken_back
    assert grown.status == 200, grown
    assert unchecked.status == 200, unchecked


def served(bed: Bed) -> bytes:
    """The certificate that the port shows."""
    return ssl.get_server_certificate(("127.0.0.1", bed.port)).encode()


def test_the_authority_is_rotated_without_a_gap_by_two_replicas(bed: Bed) -> None:
    """An authority that was announced before takes over, while volumes are created all the time."""
    handle = volume(bed.cloud, "data")
    now = SystemClock().now()
    old = performed(Step.CREATE, None, ("127.0.0.1",), now - timedelta(days=1))
    announced = performed(Step.ANNOUNCE, old, (), now - OVERLAP + timedelta(seconds=12))
    assert announced.upcoming is not None
    data = {key: b64encode(value).decode() for key, value in announced.data().items() if value}
    assert bed.api.patch(SECRET, {"data": data}).status == 200

    with bed.manager("first") as first, bed.manager("second") as second:
        eventually("asked", lambda: bed.is_labelled_at_once(handle))
        for each in (first, second):
            eventually("served", lambda each=each: "Serving webhooks" in each.log.read_text())
        assert bed.stored() == announced
        shown, labelled = served(bed), list[bool]()

        def changed(read: Callable[[], object], before: object) -> bool:
            labelled.append(bed.is_labelled_at_once(handle))
            return read() != before

        eventually("promoted", lambda: changed(bed.stored, announced))
        eventually("served by the leader", lambda: changed(lambda: served(bed), shown))
        labelled += [bed.is_labelled_at_once(handle) for _ in range(20)]

    assert all(labelled), f"{labelled.count(False)} of {len(labelled)} volumes have no labels"
    assert shown == old.serving.certificate
    assert bed.stored().signer == announced.upcoming
    assert bed.stored().previous == old.signer.certificate


def test_the_command_prints_what_the_api_server_accepts(bed: Bed) -> None:
    command = [sys.executable, "-m", "pileus", "manifests", "--cloud-provider=openstack"]
    printed = subprocess.run([*command, *FLAGS], capture_output=True, text=True, check=True).stdout

    answer = bed.cluster.kubectl("apply", "--dry-run=server", "--filename=-", stdin=printed)

    assert f"mutatingwebhookconfiguration.admissionregistration.k8s.io/{NAME}" in answer
    assert f"service/{NAME} created" in answer
