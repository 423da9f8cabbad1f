"""The label controller on the embedded API server, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from pileus.cloud.errors import Unavailable
from pileus.cloud.volume import VolumeNames
from pileus.controllers.volume_labels.controller import CHECK_EVERY, VolumeLabelController
from pileus.controllers.volume_labels.descriptor import VOLUME_LABELS
from pileus.fence import Open
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import PERSISTENT_VOLUMES, PersistentVolume
from pileus.kube.patch import MergePatch
from pileus.objects.cloud_scope import only_scope
from pileus.objects.descriptor import ControllerContext
from pileus.objects.preview import EVERYTHING
from pileus.runtime.informers import Informers
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from tests.unit.admission.beds import HERE, REGION, ZONE, FewVolumes, cloud, volume
from tests.unit.controllers.events import FakeEvents

OURS = "local.csi.pileus.dev"


@dataclass
class Bed:
    client: Client
    volumes: FewVolumes
    controller: VolumeLabelController
    events: FakeEvents

    async def add(self, name: str, driver: str = OURS, **more: Any) -> None:
        spec = {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": driver, "volumeHandle": f"v-{name}"},
            **more.pop("spec", {}),
        }
        body = {"metadata": {"name": name, **more}, "spec": spec}
        await self.client.create(PERSISTENT_VOLUMES, body)

    async def get(self, name: str) -> PersistentVolume:
        return await self.client.get(PERSISTENT_VOLUMES, name)

    async def labels(self, name: str) -> dict[str, str]:
        return (await self.get(name)).metadata.labels or {}


@asynccontextmanager
async def bed(*kept: Any) -> AsyncGenerator[Bed]:
    api = api_in_memory(clock=LoopClock(), random=Random(0))
    metrics = Metrics(MetricRegistry())
    client = Client(InProcessTransport(api), user_agent="test", metrics=metrics)
    volumes, events, informers = FewVolumes(kept), FakeEvents(), Informers(client, Random(0), 0)
    names = VolumeNames(drivers=("cinder.csi.openstack.org",), sources=("cinder",))
    context = ControllerContext(
        names=VOLUME_LABELS,
        scope=only_scope(cloud("local", volumes, names)),
        client=client,
        events=events,
        informers=informers,
        fence=Open(),
        metrics=metrics,
        clock=LoopClock(),
        random=Random(0),
        cluster_id=_id,
    )
    controller = VolumeLabelController(context, volumes)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informers.run())]
        made = Bed(client, volumes, controller, events)
        tasks.append(group.create_task(_started(made)))
        yield made
        for task in tasks:
            task.cancel()


async def _id() -> str:
    return "cluster-uid"


async def _started(made: Bed) -> None:
    await asyncio.sleep(30)  # tests prepare objects, and ask for plans, before
    await made.controller.run()


async def test_an_object_that_exists_already_gets_labels_and_affinity() -> None:
    async with bed(volume("v-one")) as made:
        await made.add("one")
        await asyncio.sleep(60)

        found = await made.get("one")

    assert found.metadata.labels == HERE
    assert found.spec
    assert found.spec.node_affinity
    assert found.spec.node_affinity.required
    terms = found.spec.node_affinity.required.node_selector_terms or ()
    assert {each.key: each.values for term in terms for each in term.match_expressions or ()} == {
        ZONE: ("a",),
        REGION: ("north",),
    }
    assert made.events.reasons("one") == ["VolumeLabelsAdded"]


async def test_many_new_objects_share_one_call_and_a_second_round_writes_nothing() -> None:
    names = [f"pv{number}" for number in range(20)]
    async with bed(*(volume(f"v-{name}") for name in names)) as made:
        await asyncio.sleep(40)
        for name in names:
            await made.add(name)
        await asyncio.sleep(5)
        versions = {(await made.get(name)).metadata.resource_version for name in names}
        await asyncio.sleep(3 * CHECK_EVERY)

        assert [len(ids) for _, ids in made.volumes.asked] == [20]
        assert versions == {(await made.get(name)).metadata.resource_version for name in names}


async def test_labels_and_affinity_of_people_are_kept() -> None:
    term = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    async with bed(volume("v-one")) as made:
        await made.add("one", labels={ZONE: "mine"}, spec=affinity)
        await asyncio.sleep(60)

        found = await made.get("one")

    assert found.metadata.labels == {ZONE: "mine", REGION: "north"}
    assert found.spec
    assert found.spec.node_affinity
    assert "rack" in repr(found.spec.node_affinity)
    assert ZONE not in repr(found.spec.node_affinity)
    assert "VolumeLabelConflict" in made.events.reasons("one")


async def test_objects_of_other_drivers_are_never_asked_about() -> None:
    async with bed(volume("v-one")) as made:
        await made.add("one", driver="ebs.csi.aws.com")
        await asyncio.sleep(60)

        assert await made.labels("one") == {}
        assert made.volumes.asked == []


async def test_a_missing_volume_is_reported_and_labelled_when_it_appears() -> None:
    async with bed() as made:
        await made.add("one")
        await asyncio.sleep(60)
        assert made.events.reasons("one") == ["VolumeNotFound"]

        made.volumes.kept = (volume("v-one"),)
        await asyncio.sleep(CHECK_EVERY)

        assert await made.labels("one") == HERE


async def test_a_cloud_that_is_down_delays_the_labels_and_nothing_else() -> None:
    async with bed(volume("v-one")) as made:
        made.volumes.error = Unavailable("down")
        await made.add("one")
        await asyncio.sleep(60)
        assert await made.labels("one") == {}

        made.volumes.error = None
        await asyncio.sleep(300)

        assert await made.labels("one") == HERE


async def test_a_label_that_someone_removes_is_added_again() -> None:
    async with bed(volume("v-one")) as made:
        await made.add("one")
        await asyncio.sleep(60)
        patch = MergePatch({"metadata": {"labels": {ZONE: None}}})
        await made.client.patch(PERSISTENT_VOLUMES, "one", patch)
        await asyncio.sleep(5)

        assert await made.labels("one") == HERE


async def test_the_plan_names_every_field_and_is_empty_afterwards() -> None:
    async with bed(volume("v-one")) as made:
        await made.add("one")
        (line,) = await made.controller.preview(EVERYTHING)
        await asyncio.sleep(60)
        after = await made.controller.preview(EVERYTHING)

    assert line.about.name == "one"
    assert getattr(line, "details", ()) == (
        f'metadata.labels[{REGION}]: "" → "north"',
        f'metadata.labels[{ZONE}]: "" → "a"',
        f"spec.nodeAffinity: none → {REGION} In [north]",
        f"spec.nodeAffinity: none → {ZONE} In [a]",
    )
    assert after == []
