"""Providers that do what the contract forbids: told clearly, no busy loop, mended when they are."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pileus.cloud.errors import Unauthorized
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.cloud.model import Absent, NodeRef
from pileus.controllers.node.controller import NodeController
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.node.settings import NodeSettings
from pileus.fence import Open
from pileus.kube.client import Client
from pileus.kube.informer import Informer, InformerOptions
from pileus.kube.model.core_v1 import NODES
from pileus.objects.cloud_scope import only_scope
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import ScriptedTransport
from tests.unit.controllers.cluster import Controlled, NodesOnly
from tests.unit.controllers.events import FakeEvents
from tests.unit.controllers.node.api_server import ApiServer
from tests.unit.controllers.node.objects import document, instance

A_WHILE = 600


class Abyss(BaseException):
    pass


async def hang(nodes: Sequence[NodeRef]) -> object:
    return await asyncio.Event().wait()


def raising(error: BaseException) -> Callable[[Sequence[NodeRef]], object]:
    def answer(nodes: Sequence[NodeRef]) -> object:
        raise error

    return answer


def only(name: str, odd: object) -> Callable[[Sequence[NodeRef]], object]:
    """Nonsense about one node, the truth about the others."""
    return lambda nodes: {n.name: odd if n.name == name else instance(n.name) for n in nodes}


class Provider:
    """Answers as the test wants it to; rightly once it is mended."""

    def __init__(self, answer: Callable[[Sequence[NodeRef]], object]) -> None:
        self.answer = answer
        self.calls = 0

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[Any, Any]:
        self.calls += 1
        found: Any = self.answer(nodes)
        return await found if asyncio.iscoroutine(found) else found

    def mend(self) -> None:
        self.answer = lambda nodes: {node.name: instance(node.name) for node in nodes}


class Site:
    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.server = ApiServer([document("good"), document("bad")])
        self.events = FakeEvents()
        self.metrics = Metrics(MetricRegistry())

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The whole controller with all of the usual equipment around the provider."""
        chance = random.Random(1)
        transport = ScriptedTransport(self.server.respond)
        client = Client(transport, user_agent="test", metrics=self.metrics)
        informer = Informer(client, NODES, random=chance, options=InformerOptions(streaming=False))
        cloud = Cloud(name="fake", instances=self.provider)
        async with (
            stacked(cloud, metrics=self.metrics, fence=Open(), equipment=Equipment()) as equipped,
            asyncio.TaskGroup() as group,
        ):
            assert equipped.instances
            given = Controlled(
                client=client, metrics=self.metrics, events=self.events, random=chance
            )
            context = given.context(NODE, only_scope(equipped), NodesOnly(informer))
            controller = NodeController(context, equipped.instances, NodeSettings())
            tasks = [group.create_task(informer.run()), group.create_task(controller.run())]
            yield
            for task in tasks:
                task.cancel()

    def is_initialized(self, name: str) -> bool:
        return f"{name}/" in self.server.patches

    def told_of(self, name: str) -> str:
        return " ".join(one.message for one in self.events.told if one.about.name == name)


WHOLE = {
    "raises": (raising(KeyError("zone")), "KeyError: 'zone'"),
    "raises a CloudError": (raising(Unauthorized("token expired")), "token expired"),
    "exits": (raising(SystemExit(3)), "SystemExit: 3"),
    "cancels itself": (raising(asyncio.CancelledError()), "CancelledError"),
    "raises what is no Exception": (raising(Abyss("deep")), "Abyss: deep"),
    "hangs": (hang, "did not answer instances.find in 60"),
    "returns None": (lambda _: None, "None instead of a mapping"),
    "returns a list": (lambda nodes: [instance(n.name) for n in nodes], "list instead of a map"),
    "knows nobody": (lambda _: {}, "did not say"),
    "answers for others": (lambda _: {"other": instance("other")}, "did not say"),
    "has wrong keys": (lambda nodes: {n: instance(n.name) for n in nodes}, "did not say"),
}


@pytest.mark.parametrize(("answer", "text"), WHOLE.values(), ids=WHOLE.keys())
async def test_a_look_up_that_fails_is_told_on_the_nodes_and_tried_again_ever_later(answer, text):
    site = Site(Provider(answer))

    async with site.running():
        await asyncio.sleep(A_WHILE)
        assert not site.is_initialized("good")
        assert text in site.told_of("good")
        assert site.provider.calls < 50, "in ten minutes, for two nodes and the rounds"

        site.provider.mend()
        await asyncio.sleep(1500)

    assert site.is_initialized("good")
    assert site.is_initialized("bad")


ONE = {
    "None": (None, "None"),
    "a dict": ({"id": "x"}, "dict instead of an Instance"),
    "an error": (KeyError("zone"), "KeyError instead of an Instance"),
    "absent without evidence": (Absent(7), "Absent instead of"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("odd", "text"), ONE.values(), ids=ONE.keys())
async def test_nonsense_about_one_node_harms_no_other(odd, text):
    site = Site(Provider(only("bad", odd)))

    async with site.running():
        await asyncio.sleep(A_WHILE)

    assert site.is_initialized("good")
    assert not site.is_initialized("bad")
    assert text in site.told_of("bad")
    assert site.provider.calls < 50


async def test_a_provider_that_answers_while_another_call_hangs_is_heard():
    provider = Provider(hang)
    site = Site(provider)

    async with site.running():
        await asyncio.sleep(10)
        provider.mend()
        site.server.put(document("late"))
        await asyncio.sleep(10)
        assert site.is_initialized("late")
        assert not site.is_initialized("good")
        await asyncio.sleep(A_WHILE)

    assert site.is_initialized("good")
