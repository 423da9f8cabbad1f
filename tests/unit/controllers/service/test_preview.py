"""The plan for Services as `pileus plan` shows it: the steps of passes."""

import asyncio
from typing import Any

from pileus.objects.preview import EVERYTHING, Place, Planned, Scope, Trouble
from pileus_lab.local.model.balancers import DeleteBalancer, RemoveMembers
from tests.unit.controllers.service.world import World


async def plan(world: World, scope: Scope = EVERYTHING, **settings: Any) -> list[str]:
    """What is planned, one line each, without a controller that runs."""
    async with world.looked_at(**settings) as controller:
        return [_line(each) for each in await controller.preview(scope)]


def _line(line: Planned | Trouble) -> str:
    if isinstance(line, Trouble):
        return f"{line.about.name}: {line.reason}: {line.message}"
    waits = f" (after {line.waits_for})" if line.waits_for else ""
    place = "" if line.place is Place.CLOUD else "cluster: "
    return f"{line.about.name}: {place}{line.effect} {line.summary}{waits}"


async def test_a_new_service_is_shown_with_all_that_it_will_cost():
    world = World()
    await world.add_node("a")
    await world.add()

    assert await plan(world) == [
        "web: cluster: ~ finalizer, condition pileus.dev/Served",
        "web: + balancer default-web on 80/TCP with member a",
        "web: cluster: ~ condition pileus.dev/Ready, addresses (after the changes in the cloud)",
    ]
    assert (world.wire.writes, world.front.changes) == ([], [])


async def test_what_is_as_it_should_be_is_not_shown():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)

    assert await plan(world) == []


async def test_the_plan_is_what_the_passes_then_do():
    world = World()
    for name in "abcdefgh":
        await world.add_node(name)
    await world.add("moves")
    await world.add("goes")
    await world.add("stays", annotations={"pileus.dev/manage": "members"})
    async with world.managed():
        await asyncio.sleep(10)
    await world.change("moves", spec={"ports": [{"port": 443}]})
    await world.change("goes", spec={"type": "ClusterIP"})
    await world.remove_node("a")
    world.front.changes.clear()

    lines = await plan(world)
    assert lines[0].startswith("goes: - balancer default-goes (127.78.0.")
    assert lines[1:] == [
        (
            "goes: cluster: ~ finalizer, condition pileus.dev/Ready, "
            "condition pileus.dev/Served (after the changes in the cloud)"
        ),
        "moves: - listener 80/TCP",
        lines[3],
        "moves: - member a",
    ]
    async with world.managed():
        await asyncio.sleep(10)

    assert sorted(world.front.changes) == [
        "balancers.delete",
        "balancers.put_port",
        "balancers.remove_members",
        "balancers.remove_port",
        "balancers.stamp",
    ]


async def test_what_is_held_is_shown_as_waiting():
    world = World()
    for name in "abcdef":
        await world.add_node(name)
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    for name in "abcde":
        await world.remove_node(name)

    (line,) = await plan(world)
    assert line == (
        "web: - 5 members "
        "(after a second check of the nodes: many members would be removed at once)"
    )


async def test_trouble_is_told_with_its_reason_and_one_object_can_be_asked_for():
    world = World()
    await world.add_node("a")
    await world.add("bad", loadBalancerIP="::1")
    await world.add("good")

    line, report = await plan(world, Scope("Service", "default", "bad"))
    assert line.startswith("bad: Misconfigured: the requested address ::1 is IPv6")
    assert report == "bad: cluster: ~ condition pileus.dev/Ready"
    assert len(await plan(world)) == 5
    assert await plan(world, Scope("Node", "", "bad")) == []


async def test_a_status_that_is_wrong_is_shown_before_and_after():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    await world.change_status(loadBalancer={"ingress": [{"ip": "192.0.2.1"}]})

    async with world.looked_at() as controller:
        (line,) = await controller.preview(EVERYTHING)
    assert isinstance(line, Planned)
    assert line.summary == "addresses"
    address = world.balancers["default-web"].addresses[0]
    assert line.details == (f"status.loadBalancer.ingress: 192.0.2.1 → {address}",)


async def test_a_new_message_of_the_same_reason_is_shown_before_and_after():
    world = World()
    await world.add_node("a")
    await world.add(annotations={"pileus.dev/manage": "nonsense"})
    async with world.managed():
        await asyncio.sleep(10)
    await world.change("web", metadata={"annotations": {"pileus.dev/manage": "ful"}})

    async with world.looked_at() as controller:
        lines = await controller.preview(EVERYTHING)

    (line,) = [each for each in lines if isinstance(each, Planned)]
    assert line.summary == "condition pileus.dev/Ready"
    (detail,) = line.details
    assert detail.startswith("status.conditions[pileus.dev/Ready].message: ")
    assert detail.index("nonsense") < detail.index(" → ") < detail.index("did you mean")


async def test_what_only_a_full_check_finds_waits_for_that():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    balancer = world.balancers["default-web"]
    await world.front.call(RemoveMembers(balancer=balancer.id, names=("a",)))

    assert await plan(world) == [
        "web: + member a (after the next full check of the load balancer (--service-drift-period))"
    ]


async def test_a_service_that_nothing_is_found_for_is_released_after_a_second_look():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    await world.front.call(DeleteBalancer(balancer=world.balancers["default-web"].id))
    await world.change(spec={"type": "ClusterIP"})

    (line,) = await plan(world)
    assert line.startswith("web: cluster: ~ finalizer")
    assert line.endswith("(after a second check that finds nothing, 30 s after the first)")


async def test_a_status_that_is_wrong_is_shown_also_where_members_change():
    world = World()
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(10)
    await world.change_status(loadBalancer={"ingress": [{"ip": "192.0.2.1"}]})
    await world.add_node("b")

    assert await plan(world) == [
        "web: + member b",
        "web: cluster: ~ addresses (after the changes in the cloud)",
    ]
