"""Attachments of volumes to nodes, as pods and administrators meet them."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from pileus.cloud.errors import Unavailable
from pileus.cloud.model import InstanceId
from pileus.volumes.parameters import DEVICE
from pileus_lab.local.model.machines import CreateMachine, ListMachines, StopMachine
from tests.unit.controllers.volume.bed import ATTACHMENTS, CLUSTER, DRIVER, ZONE, Bed, bed, bound


async def test_a_volume_is_attached_reported_and_detached():
    async with bed("n1", "n2") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()

        found = it.attachment("n1")
        assert found["status"]["attached"] is True
        assert found["status"]["attachmentMetadata"][DEVICE]
        (holder,) = await it.holders()
        assert found["metadata"]["annotations"]["csi.alpha.kubernetes.io/node-id"] == holder

        it.detach("n1")
        await it.settle()
        assert it.items(ATTACHMENTS) == []
        assert await it.holders() == []


async def test_a_second_node_gets_the_volume_only_after_the_first():
    async with bed("n1", "n2") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        (first,) = await it.holders()
        it.attach("n2")
        await it.settle()

        assert await it.holders() == [first]
        error = it.attachment("n2")["status"]["attachError"]["message"]
        assert "belongs to node n1" in error

        it.detach("n1")
        await it.settle(20)
        (second,) = await it.holders()
        assert second != first
        assert it.attachment("n2")["status"]["attached"] is True
        assert "attachError" not in it.attachment("n2")["status"]


async def test_an_attachment_to_a_node_that_does_not_exist_says_so():
    async with bed("n1") as it:
        await bound(it)
        it.attach("n9")
        await it.settle()

        error = it.attachment("n9")["status"]["attachError"]["message"]
        assert error == "node n9 does not exist"
        assert it.volumes.methods() == ["create"]


async def test_a_new_attachment_cuts_short_no_pause_that_the_api_server_asks_for():
    async with bed("n1", "n2") as it:
        await bound(it)
        times = it.refuse_writes("/va-n1/status", retry_after=30)
        it.attach("n1")
        await asyncio.sleep(5)
        it.attach("n2")  # of the same volume, so of the same key
        await asyncio.sleep(60)

        gaps = [after - before for before, after in pairwise(times)]
        assert len(gaps) == 2
        assert min(gaps) >= 30


async def test_an_error_is_not_written_before_the_api_server_allows_it():
    async with bed("n1") as it:
        await bound(it)
        it.volumes.fails["attach"] = Unavailable("lost")
        times = it.refuse_writes("/va-n1/status", retry_after=30)
        it.attach("n1")
        await asyncio.sleep(65)

        gaps = [after - before for before, after in pairwise(times)]
        assert len(gaps) == 2
        assert min(gaps) >= 30


async def test_a_detachment_that_was_lost_is_made_again():
    async with bed("n1") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        it.volumes.fails["detach"] = Unavailable("lost")
        it.detach("n1")
        await it.settle()
        assert len(await it.holders()) == 1
        assert it.attachment("n1")["status"]["detachError"]["message"] == "lost"

        it.volumes.fails.clear()
        await it.settle(20)
        assert await it.holders() == []
        assert it.items(ATTACHMENTS) == []


def in_use(it: Bed) -> dict[str, Any]:
    handle = it.pv()["spec"]["csi"]["volumeHandle"]
    return {"status": {"volumesInUse": [f"kubernetes.io/csi/{DRIVER}^{handle}"]}}


async def test_a_volume_in_use_on_an_out_of_service_node_moves_only_when_the_machine_is_off(
    caplog: pytest.LogCaptureFixture,
):
    async with bed("n1", "n2") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        (machine,) = await it.holders()
        it.act("PATCH", "/api/v1/nodes/n1/status", in_use(it))
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        it.act("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": [taint]}})
        it.detach("n1")
        it.attach("n2")
        await it.settle()

        assert await it.holders() == [machine]
        why = it.attachment("n1")["status"]["detachError"]["message"]
        assert "not detached by force" in why
        assert "its machine is running" in why

        await it.cloud.call(StopMachine(machine=machine))
        await it.settle(30)
        assert machine not in await it.holders()
        assert it.attachment("n2")["status"]["attached"] is True
        assert it.events.messages("VolumeDetachedByForce")
        assert "Detached volume by force" in caplog.text


async def test_an_attachment_of_a_deleted_node_is_detached_by_the_recorded_machine():
    async with bed("n1") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        it.act("DELETE", "/api/v1/nodes/n1")
        it.detach("n1")
        await it.settle()

        assert await it.holders() == []
        assert it.items(ATTACHMENTS) == []


async def test_an_attachment_that_others_removed_is_made_again():
    async with bed("n1", period=60.0) as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        (machine,) = await it.holders()
        (volume,) = await it.in_cloud()
        await it.volumes.inner.detach(CLUSTER, volume.id, volume.attachments[0].instance)
        await asyncio.sleep(200)

        assert await it.holders() == [machine]


async def test_a_list_that_lacks_the_volume_does_not_leave_it_attached():
    async with bed("n1") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        it.volumes.is_blind = True
        it.detach("n1")
        await it.settle()

        assert await it.holders() == []
        assert it.items(ATTACHMENTS) == []


async def test_an_attachment_that_succeeded_late_is_removed_unless_the_volume_is_mounted():
    async with bed("n1", "n2", period=60.0) as it:
        await bound(it)
        (volume,) = await it.in_cloud()
        machine = (await it.cloud.call(ListMachines())).items[0].id
        await it.volumes.inner.attach(CLUSTER, volume.id, InstanceId(machine))
        it.act("PATCH", "/api/v1/nodes/n1/status", in_use(it))
        await asyncio.sleep(200)
        assert await it.holders() == [machine]

        it.act("PATCH", "/api/v1/nodes/n1/status", {"status": {"volumesInUse": None}})
        await asyncio.sleep(200)
        assert await it.holders() == []


async def test_a_volume_is_not_detached_from_a_machine_that_is_no_node():
    """An administrator may have attached it there, for a backup: no kubelet reports its mounts."""
    async with bed("n1", period=60.0) as it:
        await bound(it)
        (volume,) = await it.in_cloud()
        machine = await it.cloud.call(CreateMachine(name="backup", zone=ZONE))
        await it.volumes.inner.attach(CLUSTER, volume.id, InstanceId(machine.id))
        await asyncio.sleep(400)

        assert await it.holders() == [machine.id]
        (message, *_) = it.events.messages("VolumeAttachedElsewhere")
        assert f"volume {volume.id} is attached to machine {machine.id}" in message


async def test_the_finalizer_stays_until_the_last_detachment_succeeded():
    """Also if no list shows the attachment: the list may be old."""
    async with bed("n1") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        it.volumes.is_blind = True
        it.volumes.fails["detach"] = Unavailable("lost")
        it.detach("n1")
        await it.settle()

        assert it.attachment("n1")["metadata"]["finalizers"]
        assert len(await it.holders()) == 1


async def test_a_volume_is_not_detached_while_its_node_cannot_be_read():
    """The node may have it mounted."""
    async with bed("n1") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        end = it.garble("/api/v1/nodes/n1")
        it.detach("n1")
        await it.settle()
        assert len(await it.holders()) == 1
        assert "detach" not in it.volumes.methods()

        end()
        await it.settle(20)
        assert await it.holders() == []


@pytest.mark.parametrize("unreadable", [(ATTACHMENTS,), ("/api/v1/nodes", "n2")])
async def test_a_stray_is_not_detached_while_attachments_or_nodes_cannot_be_read(
    unreadable: tuple[str, ...],
):
    """One of them may be why the volume is attached there."""
    async with bed("n1", "n2", period=60.0) as it:
        await bound(it)
        (volume,) = await it.in_cloud()
        machine = (await it.cloud.call(ListMachines())).items[0].id
        await it.volumes.inner.attach(CLUSTER, volume.id, InstanceId(machine))
        source = {"persistentVolumeName": "other"}
        other = {"attacher": "other.example.com", "nodeName": "n1", "source": source}
        it.act("POST", ATTACHMENTS, {"metadata": {"name": "va-other"}, "spec": other})
        end = it.garble(*unreadable)
        await asyncio.sleep(200)
        assert await it.holders() == [machine]

        end()
        await asyncio.sleep(200)
        assert await it.holders() == []
