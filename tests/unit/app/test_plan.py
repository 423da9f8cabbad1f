"""A plan of everything: every controller is asked, nothing is written, nothing waits for ever."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from random import Random

import pytest

from pileus.app.errors import CommandFailed, Fatal, NoApiServer
from pileus.app.plan import Plan, PlanLine, Planner, read_only_context
from pileus.app.registry import CONTROLLERS, Controllers
from pileus.app.run import ending_of
from pileus.app.startup import World
from pileus.cli.cluster_command import check_exists
from pileus.cloud.balancer import Effect
from pileus.cloud.errors import Unavailable, Unsupported
from pileus.cloud.interface import Cloud, OwnController, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.controllers.lifecycle.descriptor import LIFECYCLE
from pileus.controllers.node.descriptor import DESCRIPTOR as NODE_DESCRIPTOR
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.route.descriptor import ROUTE
from pileus.controllers.service.descriptor import SERVICE
from pileus.kube.errors import ReadOnly, Unreachable
from pileus.kube.model.core_v1 import NODES, SERVICES, ObjectReference
from pileus.kube.transport import Reply, Request, Transport
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)
from pileus.objects.preview import EVERYTHING, Place, Planned, Scope, Trouble
from pileus.runtime.cluster_access import KubernetesAccess
from pileus.testing.scripted import Answer, ScriptedTransport, refused
from pileus.testing.virtual_time import loop_time
from tests.unit.app.stage import (
    TIMES,
    Kube,
    NoSettings,
    Stub,
    configured,
    described,
    manager_context,
    new_node,
)
from tests.unit.classic.fakes import Provider, adapted
from tests.unit.cloud.fakes import Change, FakeBalancers, FakeInstances, FakeRoutes, Seen

WEB = ObjectReference(kind="Service", namespace="default", name="web", uid="u1")


def world(cloud: Cloud, kube: Kube) -> World:
    @asynccontextmanager
    async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
        yield cloud

    providers = Registry(discover=tuple)
    providers.register("fake", connect)
    return World({}, TIMES, Random(0), lambda _: None, providers, kube.connect)


async def cluster(*names: str) -> Kube:
    """An API server with such new nodes, and a Service."""
    kube = Kube()
    async with manager_context(Cloud(name="fake"), kube=kube) as context:
        client = context.clients.main("setup")
        for name in names:
            await client.create(NODES, new_node(name))
        ports = [{"port": 80, "nodePort": 30080}]
        web = {"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": ports}}
        await client.create(SERVICES, web, namespace="default")
    kube.requests.clear()
    return kube


async def plan(
    cloud: Cloud,
    kube: Kube,
    scope: Scope = EVERYTHING,
    *,
    controllers: Controllers = CONTROLLERS,
    flags: Sequence[str] = (),
) -> Plan:
    async with read_only_context(configured(*flags), world(cloud, kube)) as context:
        return await Planner(replace(context, controllers=controllers)).plan(scope)


def change(about: ObjectReference = WEB, **more: object) -> Planned:
    given: dict[str, object] = {"effect": Effect.CREATE, "summary": "balancer web"}
    return Planned(about=about, place=Place.CLOUD, **(given | more))  # type: ignore[arg-type]


@dataclass
class Previewing(Stub):
    lines: tuple[Planned | Trouble, ...] = ()
    error: Exception | None = None
    takes: float = 0

    async def run(self) -> None:
        raise AssertionError("a plan runs no controller")

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        await asyncio.sleep(self.takes)
        if self.error:
            raise self.error
        return self.lines


def planning(
    names: ControllerNames,
    *lines: Planned | Trouble,
    error: Exception | None = None,
    takes: float = 0,
) -> ControllerDescriptor[NoSettings]:
    return described(names, lambda _: Previewing(lines, error, takes))


async def test_the_plan_of_a_cluster_is_made_without_a_single_write():
    kube, instances = await cluster("n1", "n2"), FakeInstances()
    cloud = Cloud(name="fake", instances=instances)

    made = await plan(cloud, kube, controllers=Controllers(NODE_DESCRIPTOR))

    assert {change.about.name for _, change in made.changes} == {"n1", "n2"}
    assert {request.method for _, request in kube.requests} == {"GET"}
    assert not [request for _, request in kube.requests if "leases" in request.path]
    assert instances.asked == [(("n1", "n2"), False)]


async def test_all_controllers_are_asked_side_by_side_and_one_that_fails_harms_no_other():
    first, trouble = change(), Trouble(WEB, "Odd", "it is odd")
    controllers = Controllers(
        planning(NODE, first, takes=10),
        planning(SERVICE, error=Unavailable("the cloud is down"), takes=10),
        planning(ROUTE, trouble, takes=10),
    )

    made = await plan(Cloud(name="fake"), Kube(), controllers=controllers)

    assert made.lines == (PlanLine(NODE.canonical, first), PlanLine(ROUTE.canonical, trouble))
    assert made.failures == {SERVICE.canonical: "the cloud is down"}
    assert not made.is_whole
    assert loop_time() == pytest.approx(10, abs=1)


async def test_a_bug_in_one_preview_makes_the_plan_incomplete_and_hides_no_other():
    first = change()
    controllers = Controllers(planning(NODE, first), planning(SERVICE, error=KeyError("a bug")))

    made = await plan(Cloud(name="fake"), Kube(), controllers=controllers)

    assert made.lines == (PlanLine(NODE.canonical, first),)
    assert made.failures == {SERVICE.canonical: "internal error KeyError (see the log)"}
    assert not made.is_whole


async def test_of_one_trouble_only_the_cause_is_told():
    cause, echo = (
        Trouble(WEB, "NotFound", "no machine"),
        Trouble(WEB, "Kept", "kept", is_aftermath=True),
    )
    controllers = Controllers(planning(NODE, cause), planning(LIFECYCLE, echo))

    both = await plan(Cloud(name="fake"), Kube(), controllers=controllers)
    alone = await plan(
        Cloud(name="fake"),
        Kube(),
        controllers=controllers,
        flags=["--controllers=cloud-node-lifecycle"],
    )

    assert [told.line for told in both.lines] == [cause]
    assert [told.line for told in alone.lines] == [echo]


async def test_one_that_does_not_answer_holds_up_the_others_for_minutes_not_for_ever():
    controllers = Controllers(planning(NODE, change()), planning(SERVICE, takes=1e9))

    made = await plan(Cloud(name="fake"), Kube(), controllers=controllers)

    assert len(made.lines) == 1
    assert made.failures[SERVICE.canonical].startswith("no answer within 300 s")


async def test_controllers_that_are_off_are_not_asked_and_those_that_cannot_run_say_why():
    controllers = Controllers(
        planning(NODE, change()),
        described(SERVICE, lambda _: Skipped("no balancers here")),
        planning(ROUTE, change()),
    )

    made = await plan(
        Cloud(name="fake"), Kube(), controllers=controllers, flags=["--controllers=service,route"]
    )

    assert [told.controller for told in made.lines] == [ROUTE.canonical]
    assert made.skipped == {SERVICE.canonical: "no balancers here"}


def test_a_plan_counts_its_changes_by_effect():
    waits = change(effect=Effect.UPDATE, waits_for="the balancer")
    made = Plan((PlanLine("a", change()), PlanLine("b", change()), PlanLine("b", waits)))

    assert [made.count(effect) for effect in Effect] == [2, 1, 0, 0]
    assert (made.waiting, made.is_whole) == (1, True)


async def test_whoever_tries_to_write_during_a_plan_is_refused():
    balancers, kube = FakeBalancers(), await cluster()
    tried: list[str] = []

    @dataclass
    class Trying(Stub):
        context: ControllerContext

        async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
            assert self.context.scope.cloud.balancers
            with pytest.raises(Unsupported, match="was not sent"):
                await self.context.scope.cloud.balancers.apply(Change(), Seen())
            with pytest.raises(ReadOnly):
                await self.context.client.create(NODES, new_node("n9"))
            tried.append("both")
            return ()

    trying = Controllers(described(SERVICE, Trying))
    await plan(Cloud(name="fake", balancers=balancers), kube, controllers=trying)

    assert tried == ["both"]
    assert balancers.applied == []
    assert {request.method for _, request in kube.requests} == {"GET"}


async def test_a_provider_starts_with_a_view_of_the_cluster_but_without_a_way_to_write():
    kube, seen = await cluster("n1"), list[object]()

    @asynccontextmanager
    async def leading(access: KubernetesAccess) -> AsyncGenerator[None]:
        client = access.client("cloud-provider")
        with pytest.raises(ReadOnly):
            await client.create(NODES, new_node("n9"))
        with pytest.raises(Unsupported, match="does not hand out cluster credentials"):
            access.config("cloud-provider")
        seen.append(access.view())
        yield
        seen.append("left")

    async def own(_: KubernetesAccess) -> None:
        raise AssertionError("what a provider brings along writes past us")

    cloud = Cloud(name="fake", leading=leading, controllers=(OwnController("own", own),))

    await plan(cloud, kube, controllers=Controllers())

    assert len(seen) == 2
    assert seen[1] == "left"


@pytest.mark.real_time
async def test_a_ported_provider_is_started_and_asked_but_not_told_to_do_anything():
    provider, kube = Provider(), await cluster("n1")

    made = await plan(adapted(provider), kube, flags=["--cluster-cidr=10.244.0.0/16"])

    assert made.is_whole, (made.failures, made.troubles)
    assert "ensure the load balancer of default/web" in {it.summary for _, it in made.changes}
    assert provider.record.names[0] == "initialize"
    assert not {"ensure", "update", "delete", "create_route", "delete_route"} & {
        *provider.record.names
    }
    assert {request.method for _, request in kube.requests} == {"GET"}


@pytest.mark.parametrize(
    ("respond", "text", "at_most"),
    [
        pytest.param(
            lambda request: (
                Answer(200, b"ok")
                if request.path == "/healthz"
                else refused(403, "Forbidden", "may not list nodes")
            ),
            "nodes cannot be read: GET /api/v1/nodes: 403 Forbidden: may not list nodes",
            5,
            id="forbidden",
        ),
        pytest.param(
            lambda request: (
                Answer(200, b"ok") if request.path == "/healthz" else refused(500, "InternalError")
            ),
            "nodes cannot be read",
            15,
            id="ill",
        ),
        pytest.param(lambda _: refused(500), "failed to wait for apiserver", 15, id="down"),
    ],
)
async def test_a_plan_is_given_up_when_the_cluster_cannot_be_seen(
    respond: Callable[[object], Answer], text: str, at_most: float
):
    kube = Kube(ScriptedTransport(respond))
    cloud = Cloud(name="fake", instances=FakeInstances())

    with pytest.raises((Fatal, BaseExceptionGroup)) as raised:
        await plan(cloud, kube, controllers=Controllers(NODE_DESCRIPTOR))

    error = ending_of(raised.value)
    assert isinstance(error, Fatal)
    assert text in str(error)
    assert loop_time() <= at_most


async def test_an_api_server_that_is_not_trusted_ends_a_plan_at_once():
    def respond(_: object) -> Answer:
        raise Unreachable("GET /healthz", "host", "its certificate is not trusted", untrusted=True)

    kube = Kube(ScriptedTransport(respond))
    cloud = Cloud(name="fake", instances=FakeInstances())

    with pytest.raises((Fatal, BaseExceptionGroup)) as raised:
        await plan(cloud, kube, controllers=Controllers(NODE_DESCRIPTOR))

    error = ending_of(raised.value)
    assert isinstance(error, NoApiServer)
    assert error.untrusted
    assert loop_time() < 1


class WithoutId:
    """An API server that does not show the namespace kube-system."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def send(self, request: Request) -> AbstractAsyncContextManager[Reply]:
        if "/namespaces/kube-system" in request.path:
            return ScriptedTransport(lambda _: refused(403, "Forbidden")).send(request)
        return self._inner.send(request)


async def test_without_the_right_to_read_the_clusters_id_the_plan_says_what_is_missing():
    deaf = WithoutId((await cluster("n1")).transport)
    cloud = Cloud(name="fake", instances=FakeInstances(), balancers=FakeBalancers())

    made = await plan(cloud, Kube(deaf))

    assert "set --cluster-id" in made.failures[SERVICE.canonical]
    assert {change.about.name for _, change in made.changes} == {"n1"}
    assert loop_time() < 30
    given = await plan(cloud, Kube(deaf), flags=["--cluster-id=blue"])
    assert not given.failures


async def test_a_plan_for_routes_alone_does_not_wait_for_the_clusters_id_either():
    deaf = WithoutId((await cluster()).transport)
    flags = ["--controllers=route", "--cluster-cidr=10.0.0.0/8"]

    told = await plan(Cloud(name="fake", routes=FakeRoutes()), Kube(deaf), flags=flags)

    assert "set --cluster-id" in told.failures[ROUTE.canonical]
    assert loop_time() < 30


@pytest.mark.parametrize(
    ("scope", "text"),
    [
        (Scope("Node", "", "web-l"), 'there is no Node "web-l" (did you mean "web-1"?)'),
        (Scope("Service", "default", "wbe"), '"default/wbe" (did you mean "default/web"?)'),
        (Scope("Node", "", "zzz"), 'there is no Node "zzz"'),
    ],
)
async def test_an_object_that_does_not_exist_is_said_with_the_one_that_was_meant(
    scope: Scope, text: str
):
    kube = await cluster("web-1")

    with pytest.raises((CommandFailed, BaseExceptionGroup)) as raised:
        async with read_only_context(configured(), world(Cloud(name="fake"), kube)) as context:
            await check_exists(context, scope)

    error = ending_of(raised.value)
    assert isinstance(error, CommandFailed)
    assert str(error).endswith(text)


async def test_an_object_that_exists_is_found():
    kube = await cluster("web-1")

    async with read_only_context(configured(), world(Cloud(name="fake"), kube)) as context:
        found = await check_exists(context, Scope("Service", "default", "web"))
        assert found
        assert found.metadata.name == "web"
        assert await check_exists(context, EVERYTHING) is None
