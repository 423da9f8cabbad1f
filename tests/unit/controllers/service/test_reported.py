"""What a provider reports on a Service: annotations with facts, and events."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Notice, Owner, Wish
from pileus.cloud.options import ADOPTS, REPORTED, TEXT, Option, Options
from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import MergePatch
from pileus.objects.preview import EVERYTHING, Planned
from pileus.settings.go_quote import quote
from tests.unit.controllers.service.plain import PlainBalancers, Seen
from tests.unit.controllers.service.world import CLUSTER, World

ID, ADDRESS, WRITTEN = "acme.example/id", "acme.example/address", "pileus.dev/written"
ANNOTATIONS = Options(
    Option(ID, TEXT, "", "Load balancer.", role=ADOPTS),
    Option(ADDRESS, TEXT, "", "Its address.", role=REPORTED),
    Option("acme.example/size", TEXT, "", "Its size."),
    namespace="acme.example/",
)


def facts(seen: Seen) -> Mapping[str, Any]:
    address = seen.ingress[0].ip
    return {"annotations": {ID: f"lb-{seen.owner.uid}", ADDRESS: address}}


async def reporting() -> tuple[World, PlainBalancers]:
    world = World()
    world.annotations = ANNOTATIONS
    plain = world.plainly()
    plain.reports = facts
    await world.add_node("a")
    return world, plain


async def annotations(world: World, name: str = "web") -> dict[str, str]:
    return (await world.service(name))["metadata"].get("annotations", {})


def owner_of(service: dict[str, Any]) -> Owner:
    return Owner(CLUSTER, service["metadata"]["uid"])


def change(plain: PlainBalancers, owner: Owner, **facts: Any) -> None:
    plain.standing[owner] = replace(plain.standing[owner], **facts)


# -- annotations ---------------------------------------------------------------------------------


async def test_annotations_are_written_with_the_addresses_and_not_again():
    world, _ = await reporting()
    service = await world.add()
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        told = await annotations(world)
        assert told[ID] == f"lb-{service['metadata']['uid']}"
        assert told[ADDRESS] == (await world.ingress())[0]["ip"]
        written = [body for _, path, body in world.wire.writes if path.endswith("web/status")]
        publishing = [each for each in written if "loadBalancer" in each.get("status", {})]
        assert [set(each["metadata"]["annotations"]) for each in publishing] == [
            {ID, ADDRESS, WRITTEN}
        ]
        world.wire.writes.clear()

        await asyncio.sleep(600)

        assert world.wire.written() == []


async def test_an_annotation_follows_the_balancer():
    world, plain = await reporting()
    owner = owner_of(await world.add())
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        change(plain, owner, annotations={ID: "lb-2"})
        await asyncio.sleep(200)

        told = await annotations(world)
        assert told[ID] == "lb-2"
        assert ADDRESS not in told
        assert json.loads(told[WRITTEN]) == {ID: "lb-2"}


async def test_an_annotation_that_is_removed_manually_is_written_again():
    world, _ = await reporting()
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        before = await annotations(world)
        await world.change(metadata={"annotations": {ADDRESS: None}})
        await asyncio.sleep(10)

        assert await annotations(world) == before


async def test_only_declared_annotations_are_written(caplog: pytest.LogCaptureFixture):
    """A setting that we wrote would be a desired state of the user, and so would its removal."""
    world, plain = await reporting()
    plain.reports = lambda seen: {
        "annotations": {
            ID: "lb-1",
            "acme.example/size": "large",
            "acme.example/unknown": "1",
            "pileus.dev/manage": "none",
            "other.example/x": "1",
        }
    }
    await world.add()
    async with world.managed(drift_period=60):
        await asyncio.sleep(300)

        assert await annotations(world) == {ID: "lb-1", WRITTEN: f'{{"{ID}":"lb-1"}}'}
    (logged,) = [each for each in caplog.records if "Not writing annotations" in each.message]
    assert logged


async def test_without_declared_annotations_none_is_written():
    world = World()
    plain = world.plainly()
    plain.reports = facts
    world.annotations = Options(namespace="acme.example/")
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)

        assert await annotations(world) == {}


async def test_the_annotations_are_removed_with_the_balancer():
    world, plain = await reporting()
    await world.add(annotations={"of.user/x": "1"})
    async with world.managed():
        await asyncio.sleep(10)
        await world.change(spec={"type": "ClusterIP"})
        await asyncio.sleep(60)

        assert plain.standing == {}
        assert await annotations(world) == {"of.user/x": "1"}


@pytest.mark.parametrize("mode", ["members", "observe", "none"])
async def test_the_annotations_stay_if_the_balancer_does(mode: str):
    world, _ = await reporting()
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        before = await annotations(world)
        await world.change(metadata={"annotations": {"pileus.dev/manage": mode}})
        await asyncio.sleep(10)
        await world.change(spec={"type": "ClusterIP"})
        await asyncio.sleep(60)

        assert await annotations(world) == {**before, "pileus.dev/manage": mode}


async def test_observe_mode_writes_no_annotations():
    world, plain = await reporting()
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    for owner in plain.standing:
        change(plain, owner, annotations={ID: "lb-2"})
    before = await annotations(world)
    await world.change(metadata={"annotations": {"pileus.dev/manage": "observe"}})
    async with world.managed(drift_period=60):
        await asyncio.sleep(200)

        assert await annotations(world) == {**before, "pileus.dev/manage": "observe"}


async def test_a_plan_shows_the_annotations_that_would_be_written():
    world, plain = await reporting()
    owner = owner_of(await world.add())
    async with world.managed():
        await asyncio.sleep(10)
    before = await annotations(world)
    change(plain, owner, annotations={ID: "lb-2"})

    async with world.looked_at() as controller:
        (line,) = await controller.preview(EVERYTHING)

    assert isinstance(line, Planned)
    assert set(line.details) == {
        f'metadata.annotations[{ID}]: "{before[ID]}" → "lb-2"',
        f'metadata.annotations[{ADDRESS}]: "{before[ADDRESS]}" → removed',
        f"metadata.annotations[{WRITTEN}]: {quote(before[WRITTEN])} → "
        + quote(json.dumps({ID: "lb-2"}, separators=(",", ":"))),
    }


async def test_a_plan_for_a_deleted_balancer_does_not_announce_that_annotations_are_removed():
    world, plain = await reporting()
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    plain.standing.clear()

    async with world.looked_at() as controller:
        lines = await controller.preview(EVERYTHING)

    assert [each.summary for each in lines if isinstance(each, Planned)] == [
        "balancer",
        "addresses",
    ]


# -- an ID that we wrote adopts nothing ----------------------------------------------------------


def wishes(plain: PlainBalancers) -> list[Wish]:
    """Collects what is asked for from now on."""
    asked: list[Wish] = []
    plain.looking = asked.extend
    return asked


async def test_a_copy_of_a_service_gets_a_balancer_of_its_own():
    world, plain = await reporting()
    first = await world.add()
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        copied = await annotations(world)
        asked = wishes(plain)
        second = await world.add("copy", annotations=copied)
        await asyncio.sleep(200)

        assert {each.adopts for each in asked} == {""}
        assert set(plain.standing) == {owner_of(first), owner_of(second)}
        assert (await annotations(world, "copy"))[ID] == f"lb-{second['metadata']['uid']}"
        assert await annotations(world) == copied


async def test_a_copy_without_the_record_cannot_take_the_balancer_of_a_service_that_exists():
    world, plain = await reporting()
    first = await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        copied = {ID: (await annotations(world))[ID]}
        await world.add("copy", annotations=copied)
        await asyncio.sleep(60)

        assert set(plain.standing) == {owner_of(first)}
        state, reason, message = await world.condition("copy")
        assert (state, reason) == ("False", "Misconfigured")
        assert "was not created for this Service" in message
        assert "default/web" not in message
        assert await annotations(world, "copy") == copied


async def test_a_copy_in_another_cluster_cannot_take_the_balancer():
    world, plain = await reporting()
    theirs = Owner("another-cluster", "u1")
    plain.standing[theirs] = Seen(theirs)
    await world.add("first")
    async with world.managed():
        await asyncio.sleep(10)
        (spec,) = {each.spec for each in plain.standing.values() if each.spec}
        plain.standing[theirs] = Seen(theirs, spec=spec)
        await world.add(annotations={ID: "lb-u1"})
        await asyncio.sleep(60)

        assert plain.standing[theirs] == Seen(theirs, spec=spec)
        message = (await world.condition())[2]
        assert "was not created for this Service" in message
        assert "another-cluster" not in message


async def test_a_service_that_is_created_again_from_its_own_manifest_is_served():
    world, plain = await reporting()
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
        saved = await annotations(world)
        await world.delete()
        await asyncio.sleep(60)
        assert plain.standing == {}
        again = await world.add(annotations=saved)
        await asyncio.sleep(10)

        assert set(plain.standing) == {owner_of(again)}
        assert (await annotations(world))[ID] == f"lb-{again['metadata']['uid']}"


async def test_a_balancer_that_is_deleted_manually_is_created_again():
    """The ID of the deleted one is still on the Service, also after a restart of the manager."""
    world, plain = await reporting()
    owner = owner_of(await world.add())
    async with world.managed():
        await asyncio.sleep(10)
    plain.standing.clear()
    async with world.managed():
        await asyncio.sleep(10)

        assert set(plain.standing) == {owner}


async def test_an_id_of_the_user_is_adopted_and_kept():
    world, plain = await reporting()
    asked = wishes(plain)
    await world.add(annotations={ID: "lb-of-user"})
    async with world.managed():
        await asyncio.sleep(60)

        assert {each.adopts for each in asked} == {"lb-of-user"}
        assert (await world.condition())[1] == "Misconfigured"
        assert await annotations(world) == {ID: "lb-of-user"}


async def test_an_id_that_the_user_changes_is_the_users():
    world, plain = await reporting()
    await world.add()
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        asked = wishes(plain)
        await world.change(metadata={"annotations": {ID: "lb-of-user"}})
        await asyncio.sleep(200)

        assert {each.adopts for each in asked} == {"lb-of-user"}
        assert (await annotations(world))[ID] == "lb-of-user"


@pytest.mark.parametrize("record", ["", "{", "[]", '{"acme.example/id": 1}'])
async def test_an_unreadable_record_says_nothing(record: str):
    world, plain = await reporting()
    asked = wishes(plain)
    await world.add(annotations={ID: "lb-of-user", WRITTEN: record})
    async with world.managed():
        await asyncio.sleep(10)

        assert {each.adopts for each in asked} == {"lb-of-user"}


# -- what a wish says about the Service ----------------------------------------------------------


async def test_a_wish_names_the_service_and_its_published_addresses():
    world, plain = await reporting()
    asked = wishes(plain)
    await world.add()
    async with world.managed(drift_period=60):
        await asyncio.sleep(200)

        (address,) = [each["ip"] for each in await world.ingress()]
    assert {(each.namespace, each.service) for each in asked} == {("default", "web")}
    assert asked[0].published == frozenset()
    assert asked[-1].published == {address}
    assert len({each.fingerprint for each in asked}) == 1


async def test_published_addresses_are_no_reason_to_change_anything():
    """The desired state counts as reached although addresses were published after it was."""
    world, plain = await reporting()
    await world.add()
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        plain.changed.clear()
        await asyncio.sleep(300)

        assert plain.changed == []


# -- notices -------------------------------------------------------------------------------------

SKIPPED = Notice("FloatingIPSkipped", "The network has no router")
IGNORED = Notice("SourceRangesIgnored", "This cloud cannot restrict clients", is_warning=True)


def noticed(world: World) -> list[tuple[str, str]]:
    reasons = {SKIPPED.reason, IGNORED.reason}
    return [(kind, reason) for _, kind, reason, _ in world.events.lines() if reason in reasons]


async def test_a_notice_is_recorded_once():
    world, plain = await reporting()
    plain.reports = lambda seen: {"notices": (SKIPPED, IGNORED)}
    await world.add()
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        assert noticed(world) == [("Normal", SKIPPED.reason), ("Warning", IGNORED.reason)]

        await asyncio.sleep(10_000)

        assert len(noticed(world)) == 2


async def test_a_notice_that_changes_or_returns_is_recorded_again():
    world, plain = await reporting()
    plain.reports = lambda seen: {"notices": (IGNORED,)}
    owner = owner_of(await world.add())
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)
        change(plain, owner, notices=(replace(IGNORED, message="Another text"),))
        await asyncio.sleep(200)
        assert world.events.messages(IGNORED.reason) == [IGNORED.message, "Another text"]

        change(plain, owner, notices=())
        await asyncio.sleep(200)
        change(plain, owner, notices=(IGNORED,))
        await asyncio.sleep(200)

        assert len(noticed(world)) == 3


async def test_a_notice_that_only_full_checks_show_is_recorded_once():
    world, plain = await reporting()
    owner = owner_of(await world.add())
    async with world.managed(drift_period=60):
        await asyncio.sleep(10)

        def show(_: object) -> None:
            change(plain, owner, notices=(IGNORED,) if plain.looks[-1][1] else ())

        plain.looking = show
        for name in "bcdef":
            await world.add_node(name)
            await asyncio.sleep(100)

        assert {deep for _, deep in plain.looks} == {True, False}
        assert len(noticed(world)) == 1


# -- nodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_id", [False, True], ids=["by-address", "by-provider-id"])
async def test_nodes_that_share_an_address_get_a_warning(by_id: bool):
    world = World()
    world.plainly()
    world.abilities = Abilities(members_by_provider_id=by_id)
    for name, address in (("a", "10.0.0.5"), ("b", "10.0.0.6"), ("c", "10.0.0.5")):
        await world.add_node(name)
        status = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
        await world.user.patch(NODES, name, MergePatch(status), subresource="status")

    async with world.managed():
        await asyncio.sleep(10)

    warned = {(one.about.name, one.message.partition(":")[0]) for one in world.events.told}
    text = "Nodes a, c have the same address 10.0.0.5"
    assert warned == (set() if by_id else {("a", text), ("c", text)})
