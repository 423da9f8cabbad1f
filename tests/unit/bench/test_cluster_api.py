"""The benchmark's view of an API server, also of one that does not stream lists."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tools.bench.cluster_api import ClusterApi

pytestmark = pytest.mark.real_time

NODE = {"metadata": {"name": "a", "resourceVersion": "7"}}
ADDED = {"type": "ADDED", "object": NODE}
LATER = {"type": "MODIFIED", "object": NODE}
END = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}


@asynccontextmanager
async def served(*, streams: bool) -> AsyncGenerator[tuple[ClusterApi, list[str]]]:
    """An API server with one node, and the query of each request."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.query_string)
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "9"}, "items": [NODE]})
        is_streamed = "sendInitialEvents" in request.query
        if is_streamed and not streams:
            return web.json_response({"kind": "Status", "code": 422}, status=422)
        events = [ADDED, END, LATER] if is_streamed else [LATER]
        return web.Response(text="".join(f"{json.dumps(each)}\n" for each in events))

    app = web.Application()
    app.router.add_get("/api/v1/nodes", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession() as session:
            yield ClusterApi(session, f"http://127.0.0.1:{runner.addresses[0][1]}"), asked
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("streams", [True, False], ids=["streams lists", "before 1.32"])
async def test_a_watch_begins_with_all_objects_and_a_bookmark(*, streams: bool) -> None:
    async with served(streams=streams) as (api, asked), api.watch("/api/v1/nodes") as events:
        found = [json.loads(line) async for line in events]

    assert [each["type"] for each in found] == ["ADDED", "BOOKMARK", "MODIFIED"]
    assert found[0] == ADDED
    assert len(asked) == (1 if streams else 3)
    assert ("resourceVersion=9" in asked[-1]) is not streams
