"""Failures of a Service or of the cloud: reported with a reason, and others are not affected."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from pileus.cloud.balancer import BalancerState, Owner, Wish
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    Misconfigured,
    NeedsMembers,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.kube import errors as kube
from pileus.kube.transport import Request
from tests.unit.controllers.service.plain import Change, Seen
from tests.unit.controllers.service.world import CLUSTER, World


async def neighbours(world: World) -> None:
    for name in "abcd":
        await world.add_node(name)
    for number in range(3):
        await world.add(f"good-{number}")


async def all_well(world: World) -> None:
    for number in range(3):
        assert await world.ingress(f"good-{number}")
        assert (await world.condition(f"good-{number}"))[0] == "True"


ERRORS: list[tuple[CloudError, str, str, str]] = [
    (QuotaExceeded("no more balancers"), "False", "QuotaExceeded", "free resources"),
    (Unauthorized("token expired"), "False", "Unauthorized", "credentials"),
    (Misconfigured("no such subnet"), "False", "Misconfigured", "correct the named setting"),
    (Rejected("no"), "False", "Rejected", "change the Service"),
    (Unsupported("no UDP here"), "False", "Unsupported", "does not support it"),
    (Throttled("slowly", retry_after=7), "Unknown", "Throttled", "no action needed"),
    (Unavailable("on fire"), "Unknown", "CloudUnavailable", "until the cloud answers"),
]


@pytest.mark.parametrize(("error", "state", "reason", "advice"), ERRORS, ids=lambda e: str(e)[:20])
async def test_the_clouds_reason_and_what_to_do_are_on_the_service(
    error: CloudError, state: str, reason: str, advice: str
):
    world = World()
    cloud = world.plainly()
    await neighbours(world)
    bad = (await world.add("bad"))["metadata"]["uid"]

    def refuse(owner: Owner, change: Change) -> None:
        if owner.uid == bad:
            raise error

    cloud.changing = refuse
    async with world.managed():
        await asyncio.sleep(60)
        told = await world.condition("bad")
        assert told[:2] == (state, reason)
        assert str(error) in told[2]
        assert advice in told[2]
        assert world.events.reasons("bad").count("SyncLoadBalancerFailed") == 1
        await all_well(world)

        cloud.changing = lambda owner, change: None
        await asyncio.sleep(400)
        assert (await world.condition("bad"))[0] == "True"


@pytest.mark.parametrize("answer", [None, Unavailable("timed out"), Unauthorized("not you")])
async def test_one_owner_whom_the_cloud_does_not_tell_of_harms_no_other(answer: CloudError | None):
    world = World()
    cloud = world.plainly()
    await neighbours(world)
    bad = (await world.add("bad"))["metadata"]["uid"]
    async with world.managed():
        await asyncio.sleep(10)
        cloud.answers[bad] = answer
        cloud.changed.clear()
        await world.add_node("e")
        await asyncio.sleep(60)

        await all_well(world)
        assert len(cloud.changed) == 3
        assert (await world.condition("bad"))[0] in {"Unknown", "False"}
        await world.delete("bad")
        await asyncio.sleep(100)
        assert "bad" in await world.services()

        del cloud.answers[bad]
        await asyncio.sleep(400)
        assert "bad" not in await world.services()


async def test_a_provider_that_raises_for_all_because_of_one_harms_no_other():
    world = World()
    cloud = world.plainly()
    await neighbours(world)
    bad = (await world.add("bad"))["metadata"]["uid"]

    def looking(wishes: Sequence[Wish]) -> None:
        if any(wish.owner.uid == bad for wish in wishes):
            raise Misconfigured("one of them is odd")

    cloud.looking = looking
    async with world.managed():
        await asyncio.sleep(2)

        await all_well(world)
        assert (await world.condition("bad"))[:2] == ("False", "Misconfigured")


async def test_a_cloud_that_is_away_is_told_after_a_while_and_served_when_back():
    world = World()
    cloud = world.plainly()
    await neighbours(world)
    async with world.managed():
        await asyncio.sleep(10)

        def away(wishes: object) -> None:
            raise Unavailable("nobody answers")

        cloud.looking = away
        await world.add("late")
        await world.delete("good-0")
        await asyncio.sleep(7)
        assert await world.condition("late") == ("", "", "")
        await asyncio.sleep(60)
        assert (await world.condition("late"))[:2] == ("Unknown", "CloudUnavailable")
        assert (await world.condition("good-1"))[0] == "True"
        assert len(cloud.standing) == 3

        cloud.looking = lambda wishes: None
        await asyncio.sleep(300)
        assert await world.ingress("late")
        assert "good-0" not in await world.services()


async def test_a_condition_does_not_flap_and_its_message_is_not_reworded_all_the_time():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()
    count = 0

    def refuse(owner: Owner, change: Change) -> None:
        nonlocal count
        count += 1
        raise Throttled(f"request {count} was too many", retry_after=2)

    cloud.changing = refuse
    async with world.managed():
        await asyncio.sleep(900)

        assert count > 300
        assert len(world.wire.written()) <= 1 + 900 / 300 + 1
        assert world.events.reasons("web").count("SyncLoadBalancerFailed") == 1


async def test_a_service_that_was_corrected_and_has_another_mistake_reports_that_one_at_once():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()
    wrong = "no such subnet"

    def refuse(owner: Owner, change: Change) -> None:
        raise Misconfigured(wrong)

    cloud.changing = refuse
    async with world.managed():
        await asyncio.sleep(30)
        assert "no such subnet" in (await world.condition())[2]

        wrong = "no such floating IP"
        await world.change(metadata={"annotations": {"subnet": "corrected"}})
        await asyncio.sleep(5)

        assert "no such floating IP" in (await world.condition())[2]
        failures = world.events.messages("SyncLoadBalancerFailed")
        assert [each.rpartition("no such ")[2] for each in failures] == ["subnet", "floating IP"]


async def test_a_balancer_that_failed_is_told_in_the_clouds_words_and_tried_again():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    uid = (await world.add())["metadata"]["uid"]
    async with world.managed():
        await asyncio.sleep(10)
        owner = Owner(CLUSTER, uid)
        well = cloud.standing[owner]
        cloud.standing[owner] = Seen(
            owner, well.spec, BalancerState.FAILED, well.ingress, "amphora lost"
        )
        await world.change(metadata={"annotations": {"look": "now"}})
        await asyncio.sleep(30)
        assert (await world.condition())[0] == "False"
        assert "amphora lost" in (await world.condition())[2]
        assert await world.ingress()

        cloud.standing[owner] = well
        await asyncio.sleep(300)
        assert (await world.condition())[0] == "True"


async def test_a_balancer_that_is_busy_with_another_change_is_no_failure():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()
    left = 3

    def busy(owner: Owner, change: Change) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise Conflict("busy")

    cloud.changing = busy
    async with world.managed():
        await asyncio.sleep(20)

        assert await world.ingress()
        assert "SyncLoadBalancerFailed" not in world.events.reasons("web")


async def test_a_failed_member_update_is_told_in_the_go_frameworks_words_and_counted():
    world = World()
    cloud = world.plainly()
    for number in range(25):
        await world.add_node(f"n{number:02}")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)

        def refuse(owner: Owner, change: Change) -> None:
            raise Rejected("no more members")

        cloud.changing = refuse
        await world.add_node("n99")
        await asyncio.sleep(4)

        names = " ".join(f"n{number:02}" for number in range(20))
        (message,) = world.events.messages("UpdateLoadBalancerFailed")
        assert message == (
            f"Error updating load balancer with new hosts [{names} <6 more>] "
            "[node names limited, total number of nodes: 26], error: no more members"
        )
        assert world.sample("service_controller_nodesync_error_total") == 1


async def test_what_a_forced_deletion_left_is_tried_ever_more_seldom_while_the_cloud_is_busy():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()
    tried: list[float] = []

    def busy(owner: Owner, change: Change) -> None:
        tried.append(asyncio.get_running_loop().time())
        raise Conflict("busy")

    async with world.managed():
        await asyncio.sleep(10)
        cloud.changing = busy
        await world.delete()
        await world.change(metadata={"finalizers": None})
        await asyncio.sleep(200)

        gaps = [later - sooner for sooner, later in pairwise(tried)]
        assert gaps == sorted(gaps)
        assert len(tried) < 25
        assert world.events.messages("DeleteLoadBalancerFailed")
        cloud.changing = lambda owner, change: None
        await asyncio.sleep(20)
        assert cloud.standing == {}


async def test_who_waits_for_a_former_service_says_so_ever_more_seldom_while_it_cannot():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add()
    told: list[float] = []

    def busy(owner: Owner, change: Change) -> None:
        raise Conflict("busy")

    def refuse(request: Request) -> None:
        if b"WaitsForFormer" in (request.body or b""):
            told.append(asyncio.get_running_loop().time())
            raise kube.Conflict("PATCH services", 409, kube.Status())

    async with world.managed():
        await asyncio.sleep(10)
        cloud.changing = busy
        world.wire.before = refuse
        await world.change(metadata={"finalizers": None})
        await world.delete()
        await world.add()
        await asyncio.sleep(200)

        assert 5 < len(told) < 20
        cloud.changing = lambda owner, change: None
        await asyncio.sleep(35)
        assert (await world.condition())[0] == "True"


async def test_a_condition_that_cannot_be_written_is_tried_again_with_a_back_off_of_its_own():
    world = World()
    cloud = world.plainly()
    await world.add_node("a")
    await world.add("web")
    tried: list[float] = []

    def throttle(owner: Owner, change: Change) -> None:
        raise Throttled("slowly", retry_after=1)

    def refuse(request: Request) -> None:
        body = request.body or b""
        if request.method == "PATCH" and b"Throttled" in body and b"conditions" in body:
            tried.append(asyncio.get_running_loop().time())
            raise kube.Unreachable(request.path, "in-process", "connection lost")

    cloud.changing = throttle
    world.wire.before = refuse
    async with world.managed():
        await asyncio.sleep(600)

        assert 5 <= len(tried) <= 16, "hundreds of passes in ten minutes"
        world.wire.before = lambda request: None
        await asyncio.sleep(70)
        assert (await world.condition("web"))[1] == "Throttled"


async def test_a_balancer_that_needs_its_first_member_waits_quietly_and_is_created_with_it():
    world = World()
    cloud = world.plainly()

    def refuse_lonely(owner: Owner, change: Change) -> None:
        if change.spec is not None and not change.spec.members:
            raise NeedsMembers("no subnet yet")

    cloud.changing = refuse_lonely
    await world.add()
    async with world.managed():
        await asyncio.sleep(9)
        assert world.events.messages("SyncLoadBalancerFailed") == []
        await asyncio.sleep(400)
        assert (await world.condition())[:2] == ("False", "WaitsForMembers")
        assert len(world.events.messages("SyncLoadBalancerFailed")) == 1
        await world.add_node("a")
        await asyncio.sleep(5)

        assert (await world.condition())[0] == "True"
        assert await world.ingress()
