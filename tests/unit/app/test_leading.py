"""What happens while a process leads, to the API server's and the provider's worst behaviour."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from pileus.app.clients import Clients
from pileus.app.config import build_config
from pileus.app.declared.table import TABLE
from pileus.app.ending import Fatal
from pileus.app.informers import SharedInformers
from pileus.app.leading import Leases, lead
from pileus.app.settings import gather
from pileus.app.work import Post
from pileus.clock import SystemClock
from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import Cloud, ClusterAccess, OwnController
from pileus.fence import Open
from pileus.kube.client import Client
from pileus.kube.transport import Request
from pileus.server.health import Health, Kind
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import Answer, Lost, Scripted, ScriptedTransport, refused

Start = Callable[[ClusterAccess], AbstractAsyncContextManager[None]]


def well(_: Request) -> Scripted:
    return Answer(200, b"ok")


class Stage:
    """A process that leads, with a scripted API server and a cloud of the test's making."""

    def __init__(self, cloud: Cloud, respond: Callable[[Request], Scripted] = well) -> None:
        self.metrics = Metrics(CollectorRegistry())
        self.health = Health()
        self.transport = ScriptedTransport(respond)
        client = Client(self.transport, user_agent="test", metrics=self.metrics)
        arguments = ["--cloud-provider=fake", "--controllers=-*"]
        self.post = Post(
            config=build_config(gather(TABLE, "test", arguments, {}).values),
            cloud=cloud,
            clients=cast("Clients", _Clients(client)),
            informers=SharedInformers(client, Random(1), 0),
            fence=Open(),
            metrics=self.metrics,
            clock=SystemClock(),
            random=Random(1),
        )

    async def lead(self) -> None:
        await lead(self.post, Leases(), self.health)

    async def lead_for(self, seconds: float) -> None:
        """Lead, and be stopped as a signal would."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.lead()

    def checks(self, kind: Kind) -> dict[str, str | None]:
        """What each check says; asked without its thread, for which virtual time would not wait."""
        return {one.name: one._ask() for one in self.health.checkups(kind)}


class _Clients:
    def __init__(self, client: Client) -> None:
        self._client = client

    def main(self, suffix: str) -> Client:
        return self._client

    def controller(self, identity: str, *, fence: object) -> Client:
        return self._client


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        pytest.param(Lost(), "the connection failed", id="down"),
        pytest.param(refused(401, "Unauthorized"), "Unauthorized", id="false-token"),
        pytest.param(Answer(500, b"[-]etcd failed"), "500", id="ill"),
        pytest.param(Answer(200, delay=1e6), "no answer", id="hangs"),
    ],
)
async def test_an_api_server_that_does_not_get_well_ends_the_start_after_ten_seconds(reply, text):
    stage = Stage(Cloud(name="fake"), lambda _: reply)

    with pytest.raises(Fatal, match=f"^failed to wait for apiserver being healthy: (?s:.*){text}"):
        await stage.lead()

    assert asyncio.get_running_loop().time() == pytest.approx(10)
    assert len(stage.transport.requests) <= 11  # once a second, no busy loop


async def test_an_api_server_that_gets_well_in_time_is_used():
    replies = iter([Lost(), refused(503, "ServiceUnavailable"), Answer(200, b"ok")])
    stage = Stage(Cloud(name="fake"), lambda _: next(replies))

    await stage.lead_for(60)

    assert len(stage.transport.requests) == 3


def starting(enter: object) -> Start:
    @asynccontextmanager
    async def start(_: ClusterAccess) -> AsyncGenerator[None]:
        if isinstance(enter, BaseException):
            raise enter
        if enter == "hangs":
            await asyncio.Event().wait()
        yield

    return start


@pytest.mark.parametrize(
    ("enter", "text"),
    [
        pytest.param(Misconfigured("no region"), "no region", id="its own error"),
        pytest.param(KeyError("zone"), '"fake" could not start: KeyError', id="any other"),
        pytest.param(SystemExit("no access"), "could not start: SystemExit: no acc", id="exits"),
        pytest.param(asyncio.CancelledError(), "could not start: Cancelled", id="cancels itself"),
        pytest.param("hangs", "could not start: no answer within 60 s", id="hangs"),
    ],
)
async def test_a_provider_that_cannot_start_ends_the_process_with_the_reason(enter, text):
    stage = Stage(Cloud(name="fake", leading=starting(enter)))

    with pytest.raises(Fatal, match=f"^Cloud provider could not be initialized: .*{text}"):
        await stage.lead()


async def test_the_providers_start_is_undone_after_its_controllers_have_stopped():
    seen: list[str] = []

    @asynccontextmanager
    async def start(_: ClusterAccess) -> AsyncGenerator[None]:
        seen.append("start")
        try:
            yield
        finally:
            seen.append("end")

    async def run(_: ClusterAccess) -> None:
        seen.append("run")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            seen.append("stopped")

    stage = Stage(Cloud(name="fake", leading=start, controllers=(OwnController("own", run),)))
    await stage.lead_for(10)

    assert seen == ["start", "run", "stopped", "end"]
    assert "fake-own" not in stage.checks(Kind.READYZ)


async def test_an_own_controller_that_crashes_is_told_and_begun_again_and_harms_no_other(caplog):
    begun: list[str] = []

    async def crashing(_: ClusterAccess) -> None:
        begun.append("crashing")
        raise KeyError("zone")

    async def working(_: ClusterAccess) -> None:
        begun.append("working")
        await asyncio.Event().wait()

    own = (OwnController("routes", crashing), OwnController("nodes", working))
    stage = Stage(Cloud(name="fake", controllers=own))
    ready: dict[str, str | None] = {}

    async def look() -> None:
        await asyncio.sleep(50)
        ready.update(stage.checks(Kind.READYZ))
        assert "fake-routes" not in stage.checks(Kind.LIVEZ)  # others work: no cause to restart

    async with asyncio.TaskGroup() as group:
        group.create_task(look())
        await stage.lead_for(60)

    assert begun.count("working") == 1
    assert 4 <= begun.count("crashing") <= 7
    assert ready["fake-nodes"] is None
    assert "KeyError('zone')" in (ready["fake-routes"] or "")
    assert "own work failed" in caplog.text
