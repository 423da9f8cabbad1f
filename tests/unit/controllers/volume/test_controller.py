"""The volume controller as users of claims meet it."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import QuotaExceeded, Rejected, Unavailable
from pileus.cloud.volume import VolumeSpec, VolumeState
from pileus.controllers.volume.objects import CLAIM_FINALIZER, DELETE_FINALIZER, PROVISIONERS
from pileus.objects.preview import EVERYTHING, Planned, Trouble
from pileus.testing.virtual_time import LoopClock
from pileus_lab.local.model.volumes import DeleteVolume
from tests.unit.controllers.volume.bed import (
    CLAIMS,
    CLUSTER,
    DRIVER,
    PVS,
    bed,
    bound,
)


async def test_a_claim_gets_one_volume_and_a_persistent_volume():
    async with bed("n1") as it:
        claim = it.claim(size="1500Mi")
        await it.settle()

        pv = it.pv()
        (volume,) = await it.in_cloud()
        assert volume.owner is not None
        assert volume.owner.uid == f"pvc-{claim['metadata']['uid']}" == pv["metadata"]["name"]
        assert pv["spec"]["csi"] == {
            "driver": DRIVER,
            "volumeHandle": volume.id,
            "fsType": "ext4",
        }
        assert pv["spec"]["capacity"] == {"storage": "2Gi"}
        assert pv["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert DELETE_FINALIZER in pv["metadata"]["finalizers"]
        terms = pv["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"]
        assert {term["key"]: term["values"][0] for term in terms} == volume.topology
        found = it.act("GET", f"{CLAIMS}/data")
        assert found["status"]["phase"] == "Bound"
        assert CLAIM_FINALIZER not in found["metadata"]["finalizers"]
        assert it.volumes.methods() == ["create"]
        assert it.events.reasons() == ["ProvisioningSucceeded"]


async def test_a_claim_of_another_provisioner_or_without_a_class_gets_nothing():
    async with bed() as it:
        it.add_class("other", provisioner="example.com/other")
        it.claim(storageClassName="other")
        it.claim("plain", storageClassName="")
        await it.settle()

        assert it.volumes.calls == []
        assert it.items(PVS) == []


async def test_a_claim_with_a_forged_annotation_gets_no_volume_of_another_class():
    """kube-controller-manager writes the annotation, but the creator of the claim can, too."""
    async with bed("n1") as it:
        it.add_class("other", provisioner="example.com/other")
        it.claim(storageClassName="other")
        forged = dict.fromkeys(PROVISIONERS, DRIVER)
        it.act("PATCH", f"{CLAIMS}/data", {"metadata": {"annotations": forged}})
        await asyncio.sleep(30)

        assert it.volumes.calls == []
        assert it.items(PVS) == []
        assert CLAIM_FINALIZER not in it.act("GET", f"{CLAIMS}/data")["metadata"]["finalizers"]


async def test_a_claim_that_waits_for_a_node_gets_its_volume_in_the_zone_of_that_node():
    async with bed("n1") as it:
        it.add_class("late", volumeBindingMode="WaitForFirstConsumer")
        it.claim(storageClassName="late")
        await it.settle()
        assert it.volumes.calls == []

        zone = {"topology.kubernetes.io/zone": "local-1b"}
        it.act("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": zone}})
        notes = {"volume.kubernetes.io/selected-node": "n1"}
        it.act("PATCH", f"{CLAIMS}/data", {"metadata": {"annotations": notes}})
        await it.settle()

        (volume,) = await it.in_cloud()
        assert volume.topology["topology.kubernetes.io/zone"] == "local-1b"


async def test_a_selected_node_that_does_not_exist_is_given_back_to_the_scheduler():
    async with bed() as it:
        it.add_class("late", volumeBindingMode="WaitForFirstConsumer")
        it.claim(storageClassName="late")
        notes = {"volume.kubernetes.io/selected-node": "gone"}
        it.act("PATCH", f"{CLAIMS}/data", {"metadata": {"annotations": notes}})
        it.bind()
        await asyncio.sleep(5)

        kept = it.act("GET", f"{CLAIMS}/data")["metadata"]["annotations"]
        assert "volume.kubernetes.io/selected-node" not in kept
        assert it.volumes.calls == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"accessModes": ["ReadWriteMany"]}, "one node at a time", id="access-mode"),
        pytest.param({"selector": {"matchLabels": {"a": "b"}}}, "selector", id="selector"),
        pytest.param(
            {"resources": {"requests": {"storage": "1.5Gi"}, "limits": {"storage": "1.6Gi"}}},
            "more than the limit",
            id="limit",
        ),
        pytest.param({"storageClassName": "typo"}, "unknown parameter", id="parameter"),
        pytest.param({"storageClassName": "zoned"}, "zone", id="zone"),
        pytest.param({"storageClassName": "typed"}, "type", id="type"),
        pytest.param({"resources": {"requests": {"storage": "9000Pi"}}}, "", id="too-large"),
    ],
)
async def test_a_claim_that_cannot_be_served_says_why_and_nothing_is_created(
    fields: dict[str, Any], said: str
):
    async with bed() as it:
        it.add_class("typo", parameters={"tpye": "ssd"})
        it.add_class("zoned", parameters={"zone": "nowhere"})
        it.add_class("typed", parameters={"type": "no-such-type"})
        it.claim(**fields)
        await it.settle()

        assert await it.in_cloud() == []
        (message,) = it.events.messages("ProvisioningFailed")
        assert said in message
        assert it.sample("pileus_volumes_failing") == 1


async def test_a_full_cloud_is_tried_again_until_it_has_room():
    async with bed() as it:
        it.volumes.fails["create"] = QuotaExceeded("10 of 10 volumes are used")
        it.claim()
        await it.settle()
        assert it.events.messages("ProvisioningFailed") == ["10 of 10 volumes are used"]

        del it.volumes.fails["create"]
        await it.settle(20)

        assert len(await it.in_cloud()) == 1
        assert it.act("GET", f"{CLAIMS}/data")["status"]["phase"] == "Bound"
        assert it.sample("pileus_volumes_failing") == 0


async def test_a_volume_that_the_cloud_still_creates_is_waited_for():
    async with bed() as it:
        it.volumes.shows = VolumeState.CREATING
        it.claim()
        await it.settle()
        assert it.items(PVS) == []
        assert it.events.reasons() == []

        it.volumes.shows = None
        await it.settle()

        assert len(it.items(PVS)) == 1
        assert len(await it.in_cloud()) == 1


async def test_a_volume_that_the_cloud_gave_up_is_reported_and_kept():
    async with bed() as it:
        it.volumes.shows = VolumeState.ERROR
        it.claim()
        await it.settle()

        assert it.items(PVS) == []
        assert len(await it.in_cloud()) == 1
        assert "kubectl delete pvc -n default data" in it.events.messages("ProvisioningFailed")[0]


async def test_a_lost_answer_to_the_creation_makes_no_second_volume():
    async with bed() as it:
        it.volumes.fails_after["create"] = Unavailable("connection lost")
        it.claim()
        await it.settle()

        assert len(await it.in_cloud()) == 1
        assert len(it.items(PVS)) == 1


async def test_a_claim_that_is_deleted_before_it_has_a_persistent_volume_leaves_no_volume():
    async with bed() as it:
        it.volumes.fails_after["create"] = Rejected("the answer is lost, and the process dies")
        it.volumes.fails["list"] = Unavailable("later")
        it.claim()
        it.bind()
        await asyncio.sleep(0.5)
        assert len(await it.in_cloud()) == 1
        it.act("DELETE", f"{CLAIMS}/data")
        it.bind()
        it.restart()
        await asyncio.sleep(5)
        it.volumes.fails.clear()
        await it.settle(20)

        assert await it.in_cloud() == []
        assert it.items(CLAIMS) == []


async def test_a_claim_that_grows_gets_a_larger_volume_and_then_the_kubelet_goes_on():
    async with bed("n1") as it:
        await bound(it)
        it.grow("3Gi")
        await asyncio.sleep(5)

        (volume,) = await it.in_cloud()
        assert volume.size_gib == 3
        assert it.pv()["spec"]["capacity"] == {"storage": "3Gi"}
        status = it.act("GET", f"{CLAIMS}/data")["status"]
        assert status["allocatedResourceStatuses"] == {"storage": "NodeResizePending"}
        assert status["conditions"][0]["type"] == "FileSystemResizePending"
        assert status["capacity"] == {"storage": "1Gi"}

        await it.settle()
        assert it.act("GET", f"{CLAIMS}/data")["status"]["capacity"] == {"storage": "3Gi"}
        assert it.volumes.methods().count("resize") == 1


async def test_a_resize_that_died_half_way_is_completed():
    async with bed("n1") as it:
        await bound(it)
        it.volumes.fails_after["resize"] = Unavailable("lost")
        it.grow("3Gi")
        await asyncio.sleep(0.2)
        it.restart()
        await it.settle()

        assert it.pv()["spec"]["capacity"] == {"storage": "3Gi"}
        assert it.act("GET", f"{CLAIMS}/data")["status"]["capacity"] == {"storage": "3Gi"}
        assert it.volumes.methods().count("resize") == 1


async def test_a_resize_beyond_the_quota_says_so_and_changes_nothing():
    async with bed("n1") as it:
        await bound(it)
        it.volumes.fails["resize"] = QuotaExceeded("too many GiB")
        it.grow("3Gi")
        await it.settle()

        assert it.events.messages("VolumeResizeFailed") == ["too many GiB"]
        assert it.pv()["spec"]["capacity"] == {"storage": "1Gi"}


async def test_a_block_volume_has_its_new_size_at_once():
    async with bed("n1") as it:
        await bound(it, volumeMode="Block")
        assert "fsType" not in it.pv()["spec"]["csi"]
        it.grow("2Gi")
        await it.settle()

        assert it.act("GET", f"{CLAIMS}/data")["status"]["capacity"] == {"storage": "2Gi"}


async def test_a_released_volume_is_deleted_with_its_persistent_volume():
    async with bed("n1") as it:
        await bound(it)
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()

        assert await it.in_cloud() == []
        assert it.items(PVS) == []


async def test_a_volume_whose_creation_took_effect_twice_is_deleted_with_its_twin_and_no_other():
    async with bed("n1") as it:
        await bound(it)
        handle = it.pv()["spec"]["csi"]["volumeHandle"]
        mark = (await it.volumes.inner.list_volumes(CLUSTER))[handle].owner
        assert mark is not None
        made = {
            name: (await it.volumes.inner.create(VolumeSpec(owner=Owner(of, name), size_gib=1))).id
            for name, of in (
                ("twin", CLUSTER),
                ("with-pv", CLUSTER),
                ("attached", CLUSTER),
                ("of-another-claim", CLUSTER),
                ("of-another-cluster", "other"),
            )
        }
        it.volumes.owners = {made[name]: mark for name in ("twin", "with-pv", "attached")}
        source = {"driver": DRIVER, "volumeHandle": made["with-pv"]}
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": source}
        it.act("POST", PVS, {"metadata": {"name": "manual"}, "spec": spec})
        machine = it.act("GET", "/api/v1/nodes/n1")["spec"]["providerID"].removeprefix("local://")
        await it.volumes.inner.attach(CLUSTER, made["attached"], machine)
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()

        theirs = await it.volumes.inner.list_volumes("other")
        left = {*theirs, *(one.id for one in await it.in_cloud())}
        assert left == set(made.values()) - {made["twin"]}
        assert [one["metadata"]["name"] for one in it.items(PVS)] == ["manual"]


async def test_a_deletion_is_logged_once(caplog: pytest.LogCaptureFixture):
    async with bed("n1") as it:
        await bound(it)
        caplog.set_level(logging.INFO)
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()

    messages = [each.getMessage() for each in caplog.records]
    assert messages.count("Deleting volume") == 1
    assert messages.count("Deleted volume of PersistentVolume") == 1


async def test_a_retained_volume_stays_also_if_its_persistent_volume_is_deleted():
    async with bed("n1") as it:
        it.add_class("kept", reclaimPolicy="Retain")
        await bound(it, storageClassName="kept")
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()
        it.act("DELETE", f"{PVS}/{it.pv()['metadata']['name']}")
        await it.settle()

        assert it.items(PVS) == []
        assert len(await it.in_cloud()) == 1
        assert "delete" not in it.volumes.methods()


async def test_a_volume_is_not_deleted_while_it_is_attached():
    async with bed("n1") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()
        assert len(await it.in_cloud()) == 1
        assert "delete" not in it.volumes.methods()

        it.detach("n1")
        await it.settle()
        assert await it.in_cloud() == []


async def test_a_volume_whose_claim_exists_is_not_deleted_whatever_its_phase_says():
    async with bed("n1") as it:
        await bound(it)
        path = f"{PVS}/{it.pv()['metadata']['name']}/status"
        it.act("PATCH", path, {"status": {"phase": "Released"}})
        await asyncio.sleep(120)

        assert "delete" not in it.volumes.methods()
        assert "its claim default/data exists" in it.events.messages("VolumeFailedDelete")[0]


async def test_a_volume_that_another_persistent_volume_has_too_is_kept():
    async with bed("n1") as it:
        await bound(it)
        pv = it.pv()
        other = {
            "metadata": {"name": "other"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "csi": pv["spec"]["csi"],
            },
        }
        it.act("POST", PVS, other)
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()

        assert len(await it.in_cloud()) == 1
        assert "PersistentVolume other has it too" in it.events.messages("VolumeShared")[0]


async def test_a_volume_that_was_deleted_by_others_is_reported_and_nothing_is_lost():
    async with bed("n1", period=60.0) as it:
        await bound(it)
        (volume,) = await it.in_cloud()
        await it.cloud.call(DeleteVolume(volume=volume.id, cluster=CLUSTER))
        await asyncio.sleep(200)

        assert len(it.items(PVS)) == 1
        assert it.act("GET", f"{CLAIMS}/data")["status"]["phase"] == "Bound"
        assert len(it.events.messages("VolumeMissing")) == 2
        assert it.volumes.methods() == ["create"]
        assert it.sample("pileus_volumes_missing") == 1


async def test_an_orphan_is_reported_after_a_second_check_and_kept():
    async with bed("n1", period=60.0) as it:
        it.add_class("kept", reclaimPolicy="Retain")
        await bound(it, storageClassName="kept")
        (volume,) = await it.in_cloud()
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()
        it.act("DELETE", f"{PVS}/{it.pv()['metadata']['name']}")
        await it.settle()
        await asyncio.sleep(300)

        assert len(await it.in_cloud()) == 1
        assert volume.id in it.events.messages("OrphanedVolumes")[0]
        assert it.sample("pileus_orphaned_volumes") == 1


async def test_a_running_sidecar_of_the_same_driver_is_reported():
    async with bed("n1", period=60.0) as it:
        body = {
            "metadata": {"name": "local-csi-pileus-dev"},
            "spec": {"holderIdentity": "x", "renewTime": "2020-01-01T00:00:00.000000Z"},
        }
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        it.act("POST", leases, body)
        await asyncio.sleep(100)
        assert it.events.messages("VolumeSidecarRunning") == []

        stamp = f"{LoopClock().now() + timedelta(seconds=50):%Y-%m-%dT%H:%M:%S.%fZ}"
        renewed = {"spec": {"renewTime": stamp}}
        it.act("PATCH", f"{leases}/local-csi-pileus-dev", renewed)
        await asyncio.sleep(100)

        (message,) = it.events.messages("VolumeSidecarRunning")
        assert "external-provisioner (Lease default/local-csi-pileus-dev)" in message


async def test_the_plan_shows_each_change_before_it_is_made():
    async with bed("n1") as it:
        it.volumes.fails["create"] = Unavailable("not now")
        it.claim()
        it.bind()
        await asyncio.sleep(1)

        found = await it.controller.preview(EVERYTHING)

        changes = [line.summary for line in found if isinstance(line, Planned)]
        assert changes[0].endswith(": 1 GiB")
        assert changes[1].startswith("PersistentVolume pvc-")
        assert not any(isinstance(line, Trouble) for line in found)


async def test_the_plan_is_empty_when_everything_matches():
    async with bed("n1") as it:
        await bound(it)
        it.attach("n1")
        await it.settle()

        assert await it.controller.preview(EVERYTHING) == []


async def test_a_list_that_lacks_the_volume_does_not_leave_it_behind():
    async with bed("n1") as it:
        await bound(it)
        it.volumes.is_blind = True
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()

        assert await it.in_cloud() == []
        assert it.items(PVS) == []


async def test_a_persistent_volume_stays_until_the_last_deletion_succeeded():
    async with bed("n1") as it:
        await bound(it)
        it.volumes.is_blind = True
        it.volumes.fails["delete"] = Unavailable("lost")
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()

        assert len(it.items(PVS)) == 1
        assert len(await it.in_cloud()) == 1


async def test_a_volume_is_not_deleted_while_its_claim_cannot_be_read():
    async with bed("n1") as it:
        await bound(it)
        end = it.garble(f"{CLAIMS}/data")
        path = f"{PVS}/{it.pv()['metadata']['name']}/status"
        it.act("PATCH", path, {"status": {"phase": "Released"}})
        await asyncio.sleep(120)
        end()

        assert "delete" not in it.volumes.methods()
        assert len(await it.in_cloud()) == 1


async def test_a_volume_with_the_mark_of_another_claim_gets_no_persistent_volume():
    """A pod would get the data of another claim."""
    async with bed("n1") as it:
        await bound(it)
        (volume,) = await it.in_cloud()
        it.volumes.returns = volume
        it.claim("second")
        await it.settle()

        assert len(it.items(PVS)) == 1
        (message,) = it.events.messages("ProvisioningFailed")
        assert f"the cloud returned volume {volume.id}, which belongs to pvc-" in message
        assert message.endswith("It is not used")


async def test_a_claim_that_has_the_name_of_a_deleted_one_gets_a_volume_of_its_own():
    async with bed("n1") as it:
        it.add_class("kept", reclaimPolicy="Retain")
        await bound(it, storageClassName="kept")
        (first,) = await it.in_cloud()
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()
        it.claim(storageClassName="kept", size="5Gi")
        await it.settle()

        volumes = {each.id: each.size_gib for each in await it.in_cloud()}
        assert volumes.pop(first.id) == 1
        assert list(volumes.values()) == [5]


async def test_the_finalizer_of_a_claim_stays_that_only_has_the_name_of_a_deleted_one():
    """It keeps the claim until its own PersistentVolume exists."""
    async with bed("n1") as it:
        it.add_class("kept", reclaimPolicy="Retain")
        await bound(it, storageClassName="kept")
        it.act("DELETE", f"{CLAIMS}/data")
        await it.settle()
        it.volumes.fails["create"] = Unavailable("lost")
        it.claim(storageClassName="kept")
        await it.settle()
        writes = it.refuse_writes("/data", 1)
        it.restart()
        await it.settle()

        (claim,) = it.items(CLAIMS)
        assert CLAIM_FINALIZER in claim["metadata"]["finalizers"]
        assert writes == []
