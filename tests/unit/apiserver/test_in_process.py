"""The Kubernetes client talks to the embedded server without sockets, in virtual time."""

import asyncio
import json
from random import Random

import pytest

from pileus.kube.errors import Unreachable
from pileus.kube.transport import Request
from pileus_lab.apiserver.identity import User
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from tests.unit.apiserver.caller import MAPS, NODES, StillClock, config_map


def transport(user: User | None = None) -> InProcessTransport:
    api = api_in_memory(clock=StillClock(), random=Random(0))
    return InProcessTransport(api, user) if user else InProcessTransport(api)


async def create(over: InProcessTransport, name: str) -> int:
    body = json.dumps(config_map(name)).encode()
    async with over.send(Request(method="POST", path=MAPS, body=body)) as reply:
        return reply.status


async def test_a_request_is_answered():
    over = transport()

    assert await create(over, "a") == 201
    async with over.send(Request(method="GET", path=MAPS)) as reply:
        assert reply.headers["content-type"] == "application/json"
        listed = json.loads(await reply.read())

    assert [i["metadata"]["name"] for i in listed["items"]] == ["a"]


async def test_a_watch_is_heard_while_others_write():
    over = transport()
    query = {"watch": "1", "timeoutSeconds": "60"}
    heard: list[str] = []

    async def listen() -> None:
        async with over.send(Request(method="GET", path=MAPS, query=query)) as reply:
            async for piece in reply.chunks():
                heard.extend(
                    json.loads(x)["object"]["metadata"]["name"] for x in piece.splitlines()
                )

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(listen())
        for name in ("a", "b", "c"):
            await asyncio.sleep(10)
            await create(over, name)

    assert heard == ["a", "b", "c"]


async def test_a_silent_watch_is_dead_when_its_time_is_up():
    over = transport()
    request = Request(method="GET", path=MAPS, query={"watch": "1"}, idle_timeout=90)

    async with over.send(request) as reply:
        with pytest.raises(Unreachable):
            await reply.read()


async def test_a_user_has_no_more_rights_than_its_own():
    async with transport(User("jane")).send(Request(method="GET", path=NODES)) as reply:
        assert reply.status == 403


async def test_a_guard_that_refuses_sends_nothing():
    over = transport()

    class Refused(Exception):
        pass

    def refuse() -> None:
        raise Refused

    request = Request(method="POST", path=MAPS, body=b"{}", guard=refuse)
    with pytest.raises(Refused):
        async with over.send(request):
            pass
