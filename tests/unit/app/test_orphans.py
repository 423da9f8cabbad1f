"""Orphans: found by mark and a fresh list, deleted only if they still are what was shown."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pileus.app.errors import CommandFailed
from pileus.app.orphans import BLIND, Orphan, delete_orphans, find_orphans
from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable, Unsupported
from pileus.cloud.volume import VolumeSpec
from pileus.kube.model.core_v1 import PERSISTENT_VOLUME_CLAIMS, SERVICES
from pileus.kube.patch import MergePatch
from tests.unit.app.scene import Scene, scene
from tests.unit.cloud.fakes import FakeBalancers

APPLY = frozenset({"balancers.apply"})


@asynccontextmanager
async def abandoned(*names: str) -> AsyncGenerator[tuple[Scene, list[str]]]:
    """A cluster with a Service `kept`, and balancers of Services that were forced away."""
    async with scene("n1") as stage:
        await stage.add_service("kept", 80)
        uids = [await stage.add_service(name, 80) for name in names]
        await stage.managed(60)
        for name in names:
            await force_away(stage, name)
        stage.kube.requests.clear()
        yield stage, uids


async def force_away(stage: Scene, name: str) -> None:
    patch = MergePatch({"metadata": {"finalizers": None}})
    await stage.client.patch(SERVICES, name, patch, namespace="default")
    await stage.client.delete(SERVICES, name, namespace="default")


class NoVolumes:
    """A cloud whose volumes cannot be listed."""

    async def list_volumes(self, cluster: str) -> None:
        raise Unavailable(f"the cloud is down, also for {cluster}")


def balancers(stage: Scene) -> set[str]:
    return {each.name for each in stage.cloud.state.balancers.values()}


async def test_what_has_no_service_is_found_with_what_its_deletion_would_do() -> None:
    async with abandoned("old") as (stage, uids), stage.looked_at() as context:
        before = stage.cloud.state

        found = await find_orphans(context)

        (orphan,) = found.orphans
        assert found.owners == 2
        assert orphan.owner.uid == uids[0]
        assert orphan.balancer
        assert orphan.balancer.ingress
        assert ["balancer default-old" in change.summary for change in orphan.changes] == [True]
        assert stage.cloud.state is before
        assert stage.writes() == []


async def test_orphans_are_deleted_and_nothing_else_is() -> None:
    async with abandoned("old", "older") as (stage, _):
        async with stage.looked_at() as context:
            found = await find_orphans(context)
        async with stage.looked_at(may=APPLY) as context:
            failed = await delete_orphans(context, found.orphans)

        assert failed == {}
        assert balancers(stage) == {"default-kept"}
        assert stage.writes() == []


async def test_without_the_permission_to_write_nothing_is_deleted() -> None:
    async with abandoned("old") as (stage, _), stage.looked_at() as context:
        found = await find_orphans(context)

        failed = await delete_orphans(context, found.orphans)

        assert ["read-only access" in why for why in failed.values()] == [True]
        assert balancers(stage) == {"default-kept", "default-old"}


async def test_a_permission_for_balancers_is_none_for_anything_else() -> None:
    async with scene() as stage, stage.looked_at(may=APPLY) as context:
        assert context.cloud.volumes
        with pytest.raises(Unsupported):
            await context.cloud.volumes.delete("c", "v")  # type: ignore[arg-type]


async def test_whoever_got_a_service_between_two_looks_is_spared() -> None:
    async with abandoned() as (stage, _):
        uid = await stage.add_service("late", 80)
        await stage.managed(60)
        async with stage.looked_at() as context:
            stranger = Owner((await find_orphans(context)).cluster, uid)
        async with stage.looked_at(may=APPLY) as context:
            failed = await delete_orphans(context, [Orphan(owner=stranger)])

        assert failed == {}
        assert balancers(stage) == {"default-kept", "default-late"}


async def test_what_has_changed_since_it_was_shown_is_left_alone_and_said() -> None:
    async with abandoned("old") as (stage, _), stage.looked_at(may=APPLY) as context:
        (orphan,) = (await find_orphans(context)).orphans

        failed = await delete_orphans(context, [replace(orphan, changes=())])

        assert list(failed.values()) == [
            "it has changed since it was shown; run pileus orphans again"
        ]
        assert "default-old" in balancers(stage)


async def test_another_clusters_balancers_are_not_seen() -> None:
    async with abandoned("old") as (stage, _), stage.looked_at("--cluster-id=another") as context:
        found = await find_orphans(context)

        assert (found.owners, found.orphans) == (0, ())


async def test_a_service_that_is_no_load_balancer_any_more_is_no_orphans_owner() -> None:
    async with scene("n1") as stage:
        await stage.add_service("web", 80)
        await stage.managed(60)
        patch = MergePatch({"spec": {"type": "ClusterIP"}})
        await stage.client.patch(SERVICES, "web", patch, namespace="default")

        async with stage.looked_at() as context:
            assert (await find_orphans(context)).orphans == ()


async def test_what_others_serve_is_shown_as_the_manager_reports_it_and_never_deleted():
    """Its class is no longer among those that are served."""
    flag = "--service-classes=-"
    async with abandoned("old") as (stage, uids):
        async with stage.looked_at(flag) as context:
            found = await find_orphans(context)
        async with stage.looked_at(flag, may=APPLY) as context:
            failed = await delete_orphans(context, found.orphans)

        shown = {each.service: each.owner for each in found.orphans}
        assert shown.keys() == {"", "Service default/kept, without a class"}
        assert [each.owner.uid for each in found.deletable] == uids
        assert list(failed) == [shown["Service default/kept, without a class"]]
        assert balancers(stage) == {"default-kept"}


async def test_where_the_services_cannot_be_listed_nothing_is_an_orphan() -> None:
    async with abandoned("old") as (stage, _), stage.looked_at() as context:
        stage.kube.go_down()

        with pytest.raises(CommandFailed, match="orphans cannot be identified"):
            await find_orphans(context)


async def test_a_cloud_that_does_not_say_is_no_reason_to_stop() -> None:
    async with scene() as stage, stage.looked_at() as context:
        owner = Owner(await context.cluster_identity.find(), "u1")
        deaf = FakeBalancers(lambda: frozenset({owner}))
        deaf.observe = _nothing  # type: ignore[method-assign]
        unsaid = context.with_cloud(replace(context.cloud, balancers=deaf))

        (orphan,) = (await find_orphans(unsaid)).orphans

        assert orphan.trouble == "the cloud is down"


async def _nothing(*_: object, **__: object) -> None:
    await asyncio.sleep(0)
    raise Unavailable("the cloud is down")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knows_leftovers": False}, BLIND),
        ({"balancers": None}, "the cloud provider does not support load balancers"),
    ],
)
async def test_a_provider_that_cannot_know_says_so(change: dict[str, object], message: str) -> None:
    async with scene() as stage, stage.looked_at() as context:
        blind = context.with_cloud(replace(context.cloud, **change))

        with pytest.raises(CommandFailed) as refused:
            await find_orphans(blind)

        assert str(refused.value) == message


async def test_a_volume_without_claim_is_found_and_one_of_a_claim_is_not() -> None:
    async with scene("n1") as stage, stage.looked_at(may=frozenset({"volumes.create"})) as context:
        claim = {
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        made = await stage.client.create(PERSISTENT_VOLUME_CLAIMS, claim, namespace="default")
        cluster = (await find_orphans(context)).cluster
        assert context.cloud.volumes
        for uid in ("pvc-gone", f"pvc-{made.metadata.uid}"):
            await context.cloud.volumes.create(VolumeSpec(owner=Owner(cluster, uid), size_gib=1))

        found = await find_orphans(context)

        assert [each.volume.owner for each in found.volumes] == [Owner(cluster, "pvc-gone")]
        assert found.problems == ()


async def test_volumes_that_cannot_be_listed_are_a_problem_and_load_balancers_are_shown() -> None:
    async with abandoned("old") as (stage, _), stage.looked_at() as context:
        cloud = replace(context.cloud, volumes=NoVolumes())

        found = await find_orphans(context.with_cloud(cloud))

        assert len(found.orphans) == 1
        assert "volumes cannot be searched: the cloud is down" in found.problems[0]


async def test_persistent_volumes_are_read_only_if_the_cloud_has_volumes_of_the_cluster() -> None:
    async with abandoned("old") as (stage, _), stage.looked_at() as context:
        await find_orphans(context)

        assert not [one.path for _, one in stage.kube.requests if "persistentvolume" in one.path]
