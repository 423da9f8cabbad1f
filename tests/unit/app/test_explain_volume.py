"""The explanation of claims, PersistentVolumes and attachments, and the plans of each of them."""

from typing import Any

import pytest

from pileus.app.explain.explanation import State
from pileus.controllers.volume.objects import PROVISIONERS
from pileus.kube.model.core_v1 import (
    EVENTS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PersistentVolumeClaim,
)
from pileus.kube.model.storage_v1 import STORAGE_CLASSES, VOLUME_ATTACHMENTS
from pileus.kube.patch import MergePatch
from pileus.objects.preview import Scope
from pileus_lab.local.model.volumes import DeleteVolume
from tests.unit.app.explained import explained, text
from tests.unit.app.scene import Scene, scene

DRIVER = "local.csi.pileus.dev"
WITH = "--controllers=*,volume-controller"
CLAIM = Scope("PersistentVolumeClaim", "default", "data")


async def add_claim(
    stage: Scene,
    size: str = "2Gi",
    provisioner: str = DRIVER,
    source: dict[str, str] | None = None,
    **fields: Any,
) -> PersistentVolumeClaim:
    """A claim as kube-controller-manager hands it over, with its class."""
    made = {"metadata": {"name": "fast"}, "provisioner": provisioner, "allowVolumeExpansion": True}
    await stage.client.create(STORAGE_CLASSES, {**made, **fields})
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": size}},
        "dataSource": source,
    }
    meta = {"name": "data", "annotations": {PROVISIONERS[0]: provisioner}}
    body = {"metadata": meta, "spec": spec}
    return await stage.client.create(PERSISTENT_VOLUME_CLAIMS, body, namespace="default")


async def bound_claim(stage: Scene) -> str:
    """A claim with a PersistentVolume, both bound. Returns the name of the latter."""
    claim = await add_claim(stage)
    await stage.managed(30, WITH)
    name = f"pvc-{claim.metadata.uid}"
    amount = {"storage": "2Gi"}
    done = MergePatch({"status": {"phase": "Bound"}})
    await stage.client.patch(PERSISTENT_VOLUMES, name, done, subresource="status")
    bind = MergePatch({"spec": {"volumeName": name}})
    await stage.client.patch(PERSISTENT_VOLUME_CLAIMS, "data", bind, namespace="default")
    shown = MergePatch({"status": {"phase": "Bound", "capacity": amount}})
    await stage.client.patch(
        PERSISTENT_VOLUME_CLAIMS, "data", shown, namespace="default", subresource="status"
    )
    return name


async def attach(stage: Scene, volume: str, node: str) -> None:
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}}
    body = {"metadata": {"name": f"va-{node}"}, "spec": spec}
    await stage.client.create(VOLUME_ATTACHMENTS, body)


async def test_a_new_claim_shows_the_volume_that_will_be_created():
    async with scene() as stage:
        await add_claim(stage)
        explanation = await explained(stage, CLAIM, WITH)

    assert explanation.state is State.WAITING, "the PersistentVolume waits for the volume"
    assert explanation.desired == ("volume of 2 GiB for claim default/data, class fast",)
    assert "no volume in the cloud" in explanation.actual
    assert any("2 GiB" in change.summary for change in explanation.changes)
    assert f"driver: {DRIVER}, with the volume controller" in explanation.owner


async def test_a_claim_from_a_snapshot_shows_its_source_and_why_it_waits():
    async with scene() as stage:
        source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "copy"}
        await add_claim(stage, source=source)
        explanation = await explained(stage, CLAIM, WITH)

    (desired,) = explanation.desired
    assert desired.endswith("class fast, with the content of VolumeSnapshot copy")
    (message,) = explanation.messages
    assert "the cluster has no volumesnapshots.snapshot.storage.k8s.io" in message.message
    assert explanation.changes == ()


async def test_a_claim_without_the_volume_controller_waits_for_the_sidecar():
    async with scene() as stage:
        await add_claim(stage)
        explanation = await explained(stage, CLAIM, "--controllers=*")

    assert explanation.state is State.WAITING
    assert explanation.changes == ()
    assert explanation.waits == ("external-provisioner, which creates the volume",)
    assert explanation.next_steps == (
        "wait, then check again",
        "run: pileus explain persistentvolumeclaim default/data",
    )
    assert f"driver: {DRIVER}, with CSI sidecars" in explanation.owner


async def test_a_claim_that_waits_for_a_pod_says_so():
    async with scene() as stage:
        await add_claim(stage, volumeBindingMode="WaitForFirstConsumer")
        explanation = await explained(stage, CLAIM, WITH)

    assert explanation.state is State.WAITING
    assert explanation.waits == (
        "a pod that uses the claim: its class binds with WaitForFirstConsumer",
    )


async def test_claim_volume_and_attachment_of_a_healthy_volume_are_up_to_date():
    async with scene("n1") as stage:
        name = await bound_claim(stage)
        await attach(stage, name, "n1")
        await stage.managed(60, WITH)
        (volume,) = stage.cloud.state.volumes
        every = [
            await explained(stage, CLAIM, WITH),
            await explained(stage, Scope("PersistentVolume", "", name), WITH),
            await explained(stage, Scope("VolumeAttachment", "", "va-n1"), WITH),
        ]

    for explanation in every:
        assert explanation.state is State.UP_TO_DATE, text(explanation)
        assert "attached to n1" in explanation.desired
        assert "VolumeAttachment va-n1: n1, attached" in explanation.actual
        assert any(f"volume {volume}: 2 GiB, attached" in line for line in explanation.actual)
        assert any(f"owner {name}" in line for line in explanation.owner)
        assert explanation.next_steps[-1].startswith("run: kubectl describe ")


async def test_a_claim_that_cannot_be_served_says_why_and_what_to_do():
    async with scene() as stage:
        await add_claim(stage, parameters={"tpye": "ssd"})
        await stage.managed(30, WITH)
        explanation = await explained(stage, CLAIM, WITH)

    assert explanation.state is State.BLOCKED
    assert explanation.messages[0].reason == "ProvisioningFailed"
    assert 'did you mean "type"?' in text(explanation)
    assert "fix what the message names (ProvisioningFailed)" in explanation.next_steps
    events = [message for message in explanation.messages if message.source == "event"]
    assert [message.reason for message in events] == ["ProvisioningFailed"]


async def test_a_volume_that_was_deleted_in_the_cloud_is_reported():
    async with scene() as stage:
        name = await bound_claim(stage)
        await stage.managed(30, WITH)
        (volume,) = stage.cloud.state.volumes
        await stage.cloud.call(DeleteVolume(volume=volume))
        every = [
            await explained(stage, CLAIM, WITH),
            await explained(stage, Scope("PersistentVolume", "", name), WITH),
        ]

    for explanation in every:
        assert explanation.state is State.BLOCKED
        assert "no volume in the cloud" in explanation.actual
        assert "VolumeMissing" in {message.reason for message in explanation.messages}


async def test_an_attachment_that_fails_shows_its_error_once():
    async with scene("n1") as stage:
        name = await bound_claim(stage)
        await stage.managed(30, WITH)
        await attach(stage, name, "n1")
        await stage.client.delete(NODES, "n1")
        await stage.managed(30, WITH)
        explanation = await explained(stage, Scope("VolumeAttachment", "", "va-n1"), WITH)

    assert explanation.state is State.BLOCKED
    assert "VolumeAttachment va-n1: n1, a node that does not exist, not attached" in (
        explanation.actual
    )
    assert text(explanation).count("node n1 does not exist") == 1
    assert "run: kubectl get volumeattachments" in explanation.next_steps


async def test_a_claim_that_grows_without_the_controller_waits_for_the_sidecar():
    async with scene() as stage:
        await bound_claim(stage)
        grown = MergePatch({"spec": {"resources": {"requests": {"storage": "3Gi"}}}})
        await stage.client.patch(PERSISTENT_VOLUME_CLAIMS, "data", grown, namespace="default")
        by_sidecar = await explained(stage, CLAIM, "--controllers=*")
        by_controller = await explained(stage, CLAIM, WITH)

    assert by_sidecar.waits == ("external-resizer, which grows the volume",)
    assert any("3 GiB" in change.summary for change in by_controller.changes)


async def test_a_claim_of_another_driver_is_not_managed():
    async with scene() as stage:
        await add_claim(stage, provisioner="example.com/other")
        explanation = await explained(stage, CLAIM, WITH)

    assert explanation.state is State.NOT_MANAGED
    assert explanation.desired == ("a volume of another driver: example.com/other",)


async def test_warnings_of_sidecars_and_of_the_kubelet_are_shown():
    async with scene() as stage:
        await add_claim(stage)
        event = {
            "metadata": {"name": "e1"},
            "involvedObject": {"kind": "PersistentVolumeClaim", "name": "data"},
            "reason": "ProvisioningFailed",
            "message": "failed to provision volume: quota",
            "type": "Warning",
            "source": {"component": f"{DRIVER}_pod-1_2"},
        }
        await stage.client.create(EVENTS, event, namespace="default")
        explanation = await explained(stage, CLAIM, "--controllers=*")

    assert [message.message for message in explanation.messages] == [event["message"]]


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "PersistentVolume", "VolumeAttachment"])
async def test_the_plan_of_one_object_is_that_of_its_volume_and_of_no_other(kind: str):
    async with scene("n1") as stage:
        name = await bound_claim(stage)
        await attach(stage, name, "n1")
        body = {
            "metadata": {"name": "more", "annotations": {PROVISIONERS[0]: DRIVER}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        await stage.client.create(PERSISTENT_VOLUME_CLAIMS, body, namespace="default")
        scopes = {
            "PersistentVolumeClaim": CLAIM,
            "PersistentVolume": Scope(kind, "", name),
            "VolumeAttachment": Scope(kind, "", "va-n1"),
        }
        plan = await stage.plan(scopes[kind], WITH)
        of_node = await stage.plan(Scope("Node", "", "n1"), WITH)

    shown = {(change.about.kind, change.about.name) for _, change in plan.changes}
    assert ("VolumeAttachment", "va-n1") in shown
    assert not any(name == "more" for _, name in shown)
    assert list(of_node.changes) == [], "a node is planned without its volumes"
