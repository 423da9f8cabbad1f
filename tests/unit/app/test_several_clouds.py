"""Several clouds in one manager: each node and Service has one cloud, and none harms another."""

import asyncio
from dataclasses import replace

import pytest

from pileus.app.errors import CommandFailed
from pileus.app.run import ending_of
from pileus.cloud.errors import Unauthorized, Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.model import NodeName, NodeRef
from pileus.kube.model.core_v1 import NODES
from pileus.objects.node_clouds import Claim, claim
from pileus.server.health import Kind
from pileus.server.metrics import prometheus_text
from pileus.telemetry.instruments import MetricRegistry
from pileus.testing.virtual_time import loop_time
from tests.unit.app.several import Account, two_clouds

NODE = "cloud-node-controller"


async def test_a_new_node_belongs_to_the_cloud_that_has_its_machine():
    async with two_clouds() as it:
        it.a.machines.names.add("n1")
        it.b.machines.names.add("n2")
        await it.add_node("n1")
        await it.add_node("n2")
        async with it.managed():
            await asyncio.sleep(10)

            assert await it.is_initialized("n1") == "a://n1"
            assert await it.is_initialized("n2") == "b://n2"
            assert {event.reason for event in await it.events("n2")} == {"Synced"}


@pytest.mark.parametrize("trouble", ["down", "hangs", "not connected", "connecting hangs"])
async def test_a_cloud_in_trouble_does_not_delay_the_nodes_of_another(trouble: str):
    async with two_clouds() as it:
        it.b.machines.names.add("n2")
        it.a.machines.error = Unavailable("a is down") if trouble == "down" else None
        it.a.machines.hangs = trouble == "hangs"
        it.a.error = Unauthorized("the key is wrong") if trouble == "not connected" else None
        it.a.hangs = trouble == "connecting hangs"
        async with it.managed():
            await asyncio.sleep(5)
            await it.add_node("n2")
            await it.add_node("n3", "b://n3")
            await asyncio.sleep(10)

            assert await it.is_initialized("n2") == "b://n2"


async def test_a_cloud_that_cannot_be_connected_to_is_retried_and_the_readiness_check_says_so():
    async with two_clouds() as it:
        it.a.error = Unauthorized("the key is wrong")
        it.a.machines.names.add("n1")
        await it.add_node("n1", "a://n1")
        async with it.managed():
            await asyncio.sleep(10)
            ready = it.ready()
            assert "cloud a is not connected: the key is wrong" in (
                ready["cloud-connection@a"] or ""
            )
            assert ready["cloud-connection@b"] is None
            assert f"{NODE}@a" not in ready
            assert f"{NODE}@b" in ready

            it.a.error = None
            await asyncio.sleep(60)
            assert it.ready()["cloud-connection@a"] is None
            assert f"{NODE}@a" in it.ready()
    assert (it.a.closed, it.b.closed) == (1, 1)


async def test_a_node_that_two_clouds_have_is_reported_and_not_managed():
    async with two_clouds() as it:
        for account in (it.a, it.b):
            account.machines.names.add("n1")
        await it.add_node("n1")
        async with it.managed():
            await asyncio.sleep(120)

            assert await it.is_initialized("n1") == ""
            (event,) = await it.events("n1")
            assert (event.type, event.reason) == ("Warning", "NodeInSeveralClouds")
            assert "clouds a and b both have a machine for this node (a: a://n1, b: b://n1)" in (
                event.message
            )
            assert "Fix: kubectl patch node n1" in event.message

            await it.user.delete(NODES, "n1")
            await it.add_node("n1", "b://n1")
            await asyncio.sleep(30)
            assert (await it.node("n1")).spec is not None
            assert await it.is_initialized("n1") == "b://n1"


async def test_a_node_that_two_clouds_have_is_blocked_in_the_plan():
    async with two_clouds() as it:
        for account in (it.a, it.b):
            account.machines.names.add("n1")
        it.b.machines.names.add("n2")
        await it.add_node("n1")
        await it.add_node("n2")

        made = await it.plan("--controllers=cloud-node")

        (trouble,) = [line for _, line in made.troubles]
        assert (trouble.about.name, trouble.reason) == ("n1", "NodeInSeveralClouds")
        assert "clouds a and b" in trouble.message
        assert {(name, change.about.name) for name, change in made.changes} == {(f"{NODE}@b", "n2")}


async def test_a_plan_names_a_cloud_that_is_not_connected_and_plans_for_the_others():
    async with two_clouds() as it:
        it.a.error = Unauthorized("the key is wrong")
        it.b.machines.names.add("n2")
        await it.add_node("n2", "b://n2")

        made = await it.plan("--controllers=cloud-node")

        assert "the key is wrong" in made.failures["cloud a"]
        assert {name for name, _ in made.changes} <= {f"{NODE}@b"}


async def test_a_node_without_a_machine_is_deleted_only_if_every_cloud_says_so():
    flags = ("--node-deletion-unidentified-grace=10m",)
    async with two_clouds() as it:
        await it.add_node("n1")
        it.b.machines.error = Unavailable("b is down")
        async with it.managed(*flags):
            await asyncio.sleep(3600)
            assert (await it.node("n1")).metadata.name == "n1"

            it.b.machines.error = None
            await asyncio.sleep(1200)
            assert not (await it.user.list(NODES)).items


async def test_each_service_is_served_by_the_cloud_of_its_class_with_that_clouds_nodes():
    async with two_clouds() as it:
        for account, name in ((it.a, "n1"), (it.b, "n2")):
            account.machines.names.add(name)
            await it.add_node(name, f"{account.name}://{name}")
        async with it.managed():
            await it.add_service("default")
            await it.add_service("other", "pileus.dev/b")
            await it.add_service("foreign", "example.com/other")
            await asyncio.sleep(30)

            (at_a,), (at_b,) = it.a.balancers.standing.values(), it.b.balancers.standing.values()
            assert [ref.name for ref in at_a.wanted.members] == ["n1"]
            assert [ref.name for ref in at_b.wanted.members] == ["n2"]
            assert not await it.events("foreign")


async def test_a_service_can_have_the_nodes_of_every_cloud_as_members():
    async with two_clouds() as it:
        for account, name in ((it.a, "n1"), (it.b, "n2")):
            account.machines.names.add(name)
            await it.add_node(name, f"{account.name}://{name}")
        async with it.managed():
            await it.add_service("web", "pileus.dev/b", **{"pileus.dev/members": "all"})
            await asyncio.sleep(30)

            (at_b,) = it.b.balancers.standing.values()
            assert {ref.name for ref in at_b.wanted.members} == {"n1", "n2"}
            assert not it.a.balancers.standing


async def test_a_class_of_ours_that_no_cloud_serves_is_reported_with_the_known_ones():
    async with two_clouds() as it, it.managed():
        await it.add_service("web", "pileus.dev/c")
        await asyncio.sleep(30)

        (event,) = await it.events("web")
        assert event.reason == "UnknownLoadBalancerClass"
        assert "pileus.dev/a (cloud a), pileus.dev/b (cloud b)" in event.message
        assert not it.a.balancers.standing
        assert not it.b.balancers.standing


async def test_metrics_health_and_logs_name_the_cloud(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    async with two_clouds() as it:
        it.b.machines.names.add("n2")
        await it.add_node("n2")
        async with it.managed("--controllers=cloud-node,service") as manager:
            await asyncio.sleep(10)
            text = prometheus_text(manager._metrics.registry).decode()
            checks = set(it.ready())

    assert 'workqueue_adds_total{cloud="b",name="Nodes@b"}' in text
    assert 'running_managed_controllers{cloud="a",manager="cloud-controller-manager"' in text
    assert (
        len([line for line in text.splitlines() if line.startswith("# TYPE workqueue_adds")]) == 1
    )
    assert {
        f"{NODE}@a",
        f"{NODE}@b",
        f"{NODE}-rounds@a",
        "cloud-calls@a",
        "informers-synced",
    } <= checks
    (initialized,) = [one for one in caplog.records if one.message == "Initialized node"]
    assert vars(initialized)["pileus_values"]["cloud"] == "b"


async def test_metrics_of_a_provider_are_served_with_the_name_of_its_cloud():
    async with two_clouds() as it:
        registry = MetricRegistry()
        registry.counter("acme_requests_total", "Requests", ("kind",)).labels("list").inc()
        it.b.cloud = replace(it.b.cloud, metrics=registry.read)
        async with it.managed("--controllers=cloud-node") as manager:
            await asyncio.sleep(10)
            text = prometheus_text(manager._metrics.registry).decode()

    assert 'acme_requests_total{cloud="b",kind="list"} 1' in text


async def test_an_unknown_provider_among_several_ends_the_start_and_names_it():
    async with two_clouds() as it:
        with pytest.raises((CommandFailed, BaseExceptionGroup)) as raised:
            async with it.managed("--cloud-provider=a,bb"):
                await asyncio.sleep(10)

    error = ending_of(raised.value)
    assert 'unknown cloud provider "bb" (known: a, b)' in str(error)


async def test_one_throttled_cloud_leaves_the_budget_of_another_alone():
    async with two_clouds() as it:
        it.a.machines.hangs = True
        for number in range(40):
            await it.add_node(f"a{number}", f"a://a{number}")
        async with it.managed():
            await asyncio.sleep(20)
            it.b.machines.names.add("n2")
            began = loop_time()
            await it.add_node("n2", "b://n2")
            while not await it.is_initialized("n2"):
                await asyncio.sleep(0.5)

            assert loop_time() - began < 5


async def test_nodes_of_two_accounts_of_one_provider_are_members_in_their_own_account_only():
    async with two_clouds(same_scheme=True) as it:
        for account, name in ((it.a, "n1"), (it.b, "n2")):
            account.machines.names.add(name)
            await it.add_node(name, f"a://{name}")
        await it.add_service("default")
        await it.add_service("other", "pileus.dev/b")
        async with it.managed("--controllers=service"):
            await asyncio.sleep(600)

            (at_a,), (at_b,) = it.a.balancers.standing.values(), it.b.balancers.standing.values()
            assert [ref.name for ref in at_a.wanted.members] == ["n1"]
            assert [ref.name for ref in at_b.wanted.members] == ["n2"]


async def test_a_cloud_whose_connection_ends_later_fails_the_liveness_check():
    async with two_clouds() as it, it.managed() as manager:
        await asyncio.sleep(10)
        assert it.problem(manager, Kind.LIVEZ, "cloud-connection-lost@a") is None

        it.a.breaks.set()
        await asyncio.sleep(10)
        problem = it.problem(manager, Kind.LIVEZ, "cloud-connection-lost@a")
        assert problem is not None
        assert "the connection to cloud a was ended by its provider" in problem
        assert it.problem(manager, Kind.READYZ, "cloud-connection@a") == problem
        await asyncio.sleep(600)
        assert it.a.opened == 1
        assert it.problem(manager, Kind.LIVEZ, "cloud-connection-lost@b") is None


async def test_a_node_that_no_cloud_has_is_left_to_a_cloud_with_machines():
    async with two_clouds() as it:
        it.a.cloud = replace(it.a.cloud, instances=None)
        await it.add_node("n1")
        async with it.managed("--node-deletion-unidentified-grace=10m"):
            await asyncio.sleep(3600)
            assert not (await it.user.list(NODES)).items


async def test_a_node_that_no_cloud_has_is_left_to_one_of_them_also_beside_a_ported_provider():
    async with two_clouds() as it:
        it.b.machines.tells_absence = False
        await it.add_node("n1")
        async with it.managed():
            await asyncio.sleep(600)

            status = (await it.node("n1")).status
            conditions = (status and status.conditions) or []
            assert "NeverInitialized" in {one.reason for one in conditions}
            assert "NodeNotAssigned" not in {event.reason for event in await it.events("n1")}


A, B = Account("a", "a").cloud, Account("b", "b").cloud
TWIN = replace(A)
OWNS, DISOWNS = (lambda _: True), (lambda _: False)


@pytest.mark.parametrize(
    ("provider_id", "clouds", "expected"),
    [
        ("a://n1", {"a": A, "b": B}, Claim(owner="a")),
        ("c://n1", {"a": A, "b": B}, Claim()),
        ("c://n1", {"a": A, "b": replace(B, owns=OWNS)}, Claim(owner="b")),
        ("", {"a": A, "b": B}, Claim(candidates=("a", "b"))),
        ("", {"a": replace(A, owns=DISOWNS), "b": B}, Claim(candidates=("b",))),
        ("", {"a": replace(A, owns=OWNS), "b": B}, Claim(owner="a")),
        (
            "",
            {"a": replace(A, owns=OWNS), "b": replace(B, owns=OWNS)},
            Claim(contested=("a", "b")),
        ),
        ("a://n1", {"a": A, "twin": TWIN}, Claim(candidates=("a", "twin"))),
        ("a://n1", {"a": A, "twin": replace(TWIN, owns=OWNS)}, Claim(owner="twin")),
        ("a://n1", {"a": A, "twin": replace(TWIN, owns=DISOWNS)}, Claim(owner="a")),
        ("a://n1", {"a": replace(A, owns=DISOWNS), "b": B}, Claim()),
        ("", {"a": A, "routes": Cloud(name="routes")}, Claim(candidates=("a",))),
    ],
)
def test_a_node_is_claimed_by_scheme_then_by_owns(provider_id, clouds, expected):
    ref = NodeRef(name=NodeName("n1"), provider_id=provider_id)

    assert claim(ref, clouds) == expected
