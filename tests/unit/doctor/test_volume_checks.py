"""Checks of volumes: on observations that are written down, and with faults in a cluster."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable
from pileus.cloud.finding import Severity
from pileus.cloud.volume import ZONE_LABEL, VolumeSpec
from pileus.doctor.cloud_reading import Sought, _with_volumes
from pileus.doctor.doctor import diagnose
from pileus.doctor.observation import CloudState, Expected, Observation, Storage, Unread
from pileus.doctor.records import CsiDriver, CsiNode, Lease, Node
from pileus.doctor.volume_checks import volumes
from pileus.kube.model.core_v1 import (
    PERSISTENT_VOLUMES,
    CsiSource,
    PersistentVolume,
    PersistentVolumeSpec,
)
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.model.storage_v1 import (
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    StorageClass,
    VolumeAttachment,
)
from pileus.testing.virtual_time import LoopClock
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.connect import cloud_of
from tests.unit.app.scene import scene
from tests.unit.doctor.test_checks import HEALTHY, NOW
from tests.unit.doctor.test_checks import lease as a_lease
from tests.unit.doctor.ward import at_work, create, examined, grant, healthy_cluster, ids, seen

DRIVER = "openstack.csi.pileus.dev"
LOCAL = "local.csi.pileus.dev"
LONG_AGO = NOW - timedelta(hours=2)


def made(kind: type[Any], value: dict[str, Any]) -> Any:
    return msgspec.convert(value, kind)


def driver(**spec: Any) -> CsiDriver:
    fields = {"attachRequired": True, "volumeLifecycleModes": ["Persistent"], **spec}
    return made(CsiDriver, {"metadata": {"name": DRIVER}, "spec": fields})


def node(name: str, *, age: timedelta = timedelta(hours=2), **changes: Any) -> Node:
    metadata = {"name": name, "creationTimestamp": NOW - age, "labels": changes.pop("labels", {})}
    spec = {"providerID": f"openstack:///{name}", **changes.pop("spec", {})}
    ready = {"type": "Ready", "status": changes.pop("ready", "True")}
    return made(Node, {"metadata": metadata, "spec": spec, "status": {"conditions": [ready]}})


def csi_node(name: str, *drivers: str) -> CsiNode:
    known = [{"name": each} for each in drivers]
    return made(CsiNode, {"metadata": {"name": name}, "spec": {"drivers": known}})


def attachment(
    *,
    age: timedelta = timedelta(minutes=10),
    deleted_for: timedelta | None = None,
    annotations: dict[str, str] | None = None,
    **status: Any,
) -> VolumeAttachment:
    metadata: dict[str, Any] = {"name": "va-1", "creationTimestamp": NOW - age}
    metadata["annotations"] = annotations or {}
    if deleted_for is not None:
        metadata["deletionTimestamp"] = NOW - deleted_for
    spec = {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}}
    value = {"metadata": metadata, "spec": spec, "status": {"attached": False, **status}}
    return made(VolumeAttachment, value)


CLASS = StorageClass(metadata=ObjectMeta(name="fast"), provisioner=DRIVER)
STORAGE = Storage(classes=(CLASS,), drivers=(driver(),), nodes=(csi_node("n1", DRIVER),))
CLOUD = CloudState(name="openstack", scheme="openstack")
GOOD = replace(HEALTHY, storage=STORAGE, nodes=(node("n1"),), clouds=(CLOUD,))


def found(observation: Observation) -> list[str]:
    verdict = volumes(observation)
    for finding in verdict.findings:
        assert finding.what, finding
        assert finding.reason, finding
        assert finding.fix, finding
    return [finding.id for finding in verdict.findings]


def with_storage(**changes: Any) -> Observation:
    return replace(GOOD, storage=replace(STORAGE, **changes))


def test_a_driver_that_works_has_no_findings() -> None:
    verdict = volumes(with_storage(attachments=(attachment(attached=True),)))

    assert verdict.findings == ()
    assert verdict.summary == f"{DRIVER} (0 PersistentVolumes, 1 attachment)"


def test_a_cluster_without_a_driver_of_pileus_is_not_examined() -> None:
    verdict = volumes(HEALTHY)

    assert verdict.findings == ()
    assert not verdict.is_skipped
    assert verdict.summary.startswith("none")


def test_a_class_whose_driver_is_not_installed_is_an_error() -> None:
    (finding,) = volumes(with_storage(drivers=())).findings

    assert finding.id == "csi-driver-missing"
    assert "StorageClass fast" in finding.what
    assert finding.fix.startswith("pileus manifests --cloud-provider=openstack --csi")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"attachRequired": False}, "attachRequired: false"),
        ({"volumeLifecycleModes": ["Ephemeral"]}, "volumeLifecycleModes: Ephemeral"),
    ],
)
def test_a_driver_object_that_does_not_fit_is_an_error(spec: dict[str, Any], said: str) -> None:
    (finding,) = volumes(with_storage(drivers=(driver(**spec),))).findings

    assert finding.id == "csi-driver-differs"
    assert said in finding.what


@pytest.mark.parametrize(
    ("nodes", "severity"),
    [
        ((node("n1"), node("n2")), Severity.WARNING),
        ((node("n2"), node("n3")), Severity.ERROR),
    ],
)
def test_nodes_without_the_driver_are_found(nodes: tuple[Node, ...], severity: Severity) -> None:
    (finding,) = volumes(replace(GOOD, nodes=nodes)).findings

    assert finding.id == "csi-node-missing"
    assert finding.severity is severity
    assert "n2" in finding.subject
    assert "spec.nodeName=n2" in finding.fix


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(node("n2", age=timedelta(minutes=1)), id="new"),
        pytest.param(node("n2", ready="Unknown"), id="not-ready"),
        pytest.param(node("n2", spec={"providerID": "aws:///n2"}), id="another-cloud"),
        pytest.param(node("n2", labels={"kubernetes.io/os": "windows"}), id="windows"),
        pytest.param(
            node(
                "n2",
                spec={"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized"}]},
            ),
            id="uninitialized",
        ),
    ],
)
def test_nodes_that_cannot_have_the_driver_yet_are_no_findings(other: Node) -> None:
    assert found(replace(GOOD, nodes=(node("n1"), other))) == []


def test_an_api_server_without_csi_nodes_says_nothing_about_nodes() -> None:
    assert found(with_storage(nodes=None)) == []


FAILED = {"message": "no machine n1", "time": NOW}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param(attachment(attachError=FAILED), ["attachment-failing"], id="failing"),
        pytest.param(attachment(), ["attachment-stuck"], id="stuck"),
        pytest.param(attachment(age=timedelta(minutes=2), attachError=FAILED), [], id="new"),
        pytest.param(attachment(attached=True, attachError=FAILED), [], id="attached"),
        pytest.param(
            attachment(attached=True, deleted_for=timedelta(minutes=6)),
            ["detachment-stuck"],
            id="detaching-for-long",
        ),
        pytest.param(
            attachment(attached=True, deleted_for=timedelta(minutes=2)), [], id="detaching"
        ),
    ],
)
def test_attachments_that_are_stuck_are_found(item: VolumeAttachment, expected: list[str]) -> None:
    assert found(with_storage(attachments=(item,))) == expected


def test_the_error_of_a_detachment_is_shown() -> None:
    item = attachment(deleted_for=timedelta(hours=1), detachError=FAILED)
    (finding,) = volumes(with_storage(attachments=(item,))).findings

    assert finding.what == "is being deleted since 1 hour: no machine n1"


def sidecar(age: float = 2.0) -> Lease:
    return a_lease(name="openstack-csi-pileus-dev", holder="csi-1", age=age, manager="csi")


def test_sidecars_beside_the_volume_controller_are_an_error() -> None:
    enabled = Expected(providers=("openstack",), serves_volumes=True)
    both = replace(GOOD, expected=enabled, sidecars=(sidecar(),))
    (finding,) = volumes(both).findings
    assert finding.id == "volume-writers"
    assert "external-provisioner (Lease kube-system/openstack-csi-pileus-dev)" in finding.what

    assert found(replace(both, sidecars=(sidecar(age=3600),))) == []
    assert found(replace(both, expected=GOOD.expected)) == []
    assert found(replace(both, lease=None)) == []
    assert found(replace(both, clouds=())) == []


def test_attachments_of_the_volume_controller_prove_that_it_works() -> None:
    mark = {"volume.pileus.dev/id": "vol-1"}
    recent = attachment(annotations=mark, attached=True)
    old = attachment(annotations=mark, attached=True, age=timedelta(days=1))

    for item, expected in ((recent, ["volume-writers"]), (old, [])):
        storage = replace(STORAGE, attachments=(item,))
        assert found(replace(GOOD, storage=storage, sidecars=(sidecar(),))) == expected


def test_what_the_cloud_lacks_or_does_not_list_is_found() -> None:
    lost = replace(CLOUD, missing_volumes=frozenset({"pv-1", "pv-2"}))
    (finding,) = volumes(replace(GOOD, clouds=(lost,))).findings
    assert finding.id == "volume-missing"
    assert finding.subject == "PersistentVolumes pv-1, pv-2"

    mute = replace(CLOUD, volume_problem="no answer")
    assert found(replace(GOOD, clouds=(mute,))) == ["volumes-unknown"]


def in_zone(name: str, zone: str, driver_name: str = DRIVER) -> PersistentVolume:
    terms = [{"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": [zone]}]}]
    spec = {
        "csi": {"driver": driver_name, "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }
    return made(PersistentVolume, {"metadata": {"name": name}, "spec": spec})


def test_volumes_in_a_zone_without_nodes_are_found() -> None:
    """Cinder has one zone, nova, and the servers are in others."""
    nodes = tuple(node(zone, labels={ZONE_LABEL: zone}) for zone in ("az1", "az2"))
    listed = (in_zone("pv-1", "nova"), in_zone("pv-2", "az1"), in_zone("pv-3", "nova", "other"))
    registered = tuple(csi_node(each.metadata.name, DRIVER) for each in nodes)
    these = replace(with_storage(nodes=registered), nodes=nodes, volumes=listed)

    (finding,) = volumes(these).findings

    assert finding.id == "volume-without-node"
    assert finding.subject == "PersistentVolume pv-1"
    assert finding.what == "is in zone nova, and no node is: nodes are in az1, az2"
    assert found(replace(these, volumes=listed[1:])) == []
    assert found(replace(these, nodes=())) == []


def test_parts_that_cannot_be_read_keep_only_their_own_checks_from_being_made() -> None:
    forbidden = Unread("Leases of CSI sidecars", "forbidden")
    partly = replace(with_storage(drivers=()), sidecars=forbidden, volumes=forbidden)
    assert found(partly) == ["csi-driver-missing"]

    nothing = replace(GOOD, storage=Unread("StorageClasses", "forbidden"))
    (check,) = [each for each in diagnose(nothing).checked if each.check.id == "volumes"]
    assert not check.is_made


# -- reading --------------------------------------------------------------------------------------


def pv(name: str, handle: str, *, driver: str = LOCAL, **status: Any) -> PersistentVolume:
    return PersistentVolume(
        metadata=ObjectMeta(name=name, creation_timestamp=LONG_AGO),
        spec=PersistentVolumeSpec(csi=CsiSource(driver=driver, volume_handle=handle)),
        **status,
    )


async def test_only_volumes_that_the_cloud_does_not_have_are_missing() -> None:
    cloud = await cloud_of(LocalCloud(CloudContext(clock=LoopClock(), chance=Random(1))))
    assert cloud.volumes is not None
    spec = VolumeSpec(owner=Owner("c1", "pvc-1"), size_gib=1, name="a")
    here = await cloud.volumes.create(spec)
    there = await cloud.volumes.create(replace(spec, owner=Owner("c2", "pvc-2")))
    new = msgspec.structs.replace(
        pv("new", "v1"), metadata=ObjectMeta(name="new", creation_timestamp=NOW)
    )
    listed = (
        pv("here", here.id),
        pv("lost", "no-such-volume"),
        pv("of-another-cluster", there.id),
        pv("of-another-driver", "x", driver="example.com"),
        new,
    )
    sought = Sought(volumes=listed, cluster="c1", now=NOW)

    state = await _with_volumes(CloudState(name="local"), cloud, sought)
    assert state.missing_volumes == {"lost", "of-another-cluster"}

    unknown = replace(sought, cluster="")
    assert (await _with_volumes(CloudState(name="local"), cloud, unknown)).missing_volumes == set()


async def test_a_cloud_that_does_not_list_volumes_is_a_problem_and_nothing_is_missing() -> None:
    class Mute:
        async def list_volumes(self, *_: object) -> Any:
            raise Unavailable("no answer")

    cloud = await cloud_of(LocalCloud(CloudContext(clock=LoopClock(), chance=Random(1))))
    mute: Any = Mute()
    sought = Sought(volumes=(pv("lost", "v"),), cluster="c1", now=NOW)

    state = await _with_volumes(CloudState(name="local"), replace(cloud, volumes=mute), sought)

    assert state.volume_problem == "no answer"
    assert state.missing_volumes == frozenset()


# -- a whole cluster ------------------------------------------------------------------------------


def storage_object(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        **fields,
    }


async def test_a_cluster_without_volumes_is_asked_for_classes_and_drivers_only() -> None:
    async with healthy_cluster() as it:
        before = len(it.kube.requests)
        await examined(it)
        paths = {request.path for _, request in it.kube.requests[before:]}

    asked = {path.rpartition("/")[2] for path in paths if "storage.k8s.io" in path}
    assert asked == {"storageclasses", "csidrivers"}
    assert not [path for path in paths if path.endswith("/persistentvolumes")]


async def test_planted_faults_of_volumes_are_found_in_a_cluster() -> None:
    flag = "--controllers=*,volume-controller"
    async with scene("n1") as it:
        await grant(it, flag)
        parameters = {"metadata": {"name": "fast"}, "provisioner": LOCAL}
        await it.client.create(STORAGE_CLASSES, parameters)
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": LOCAL, "volumeHandle": "no-such-volume"},
        }
        await it.client.create(PERSISTENT_VOLUMES, {"metadata": {"name": "lost"}, "spec": spec})
        wanted = {"attacher": LOCAL, "nodeName": "n1", "source": {"persistentVolumeName": "lost"}}
        await it.client.create(VOLUME_ATTACHMENTS, {"metadata": {"name": "va"}, "spec": wanted})
        async with at_work(it, flag):
            await asyncio.sleep(120)
            now = (await seen(it, flag)).server_now
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "local-csi-pileus-dev", "namespace": "storage"},
                "spec": {
                    "holderIdentity": "csi-1",
                    "leaseDurationSeconds": 15,
                    "renewTime": f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
                },
            }
            await create(it, {"kind": "Namespace", "metadata": {"name": "storage"}})
            await create(it, lease)
            diagnosis = await examined(it, flag)

    assert ids(diagnosis) >= {
        "csi-driver-missing",
        "attachment-failing",
        "volume-writers",
        "volume-missing",
    }
    async with scene("n1") as it:
        await create(it, storage_object("CSIDriver", LOCAL, spec={"attachRequired": False}))
        assert "csi-driver-differs" in ids(await examined(it))
