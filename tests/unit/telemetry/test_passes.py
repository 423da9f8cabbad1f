"""What a pass records, through the runtime, the cloud's middleware and the API client."""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from pileus.cloud.errors import Unavailable
from pileus.cloud.http import Answer, Http, HttpSettings
from pileus.cloud.http import Request as CloudRequest
from pileus.cloud.interface import Cloud, Instances
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.cloud.model import Instance, InstanceId, NodeName, NodeRef
from pileus.fence import Fenced, Open
from pileus.kube.client import Client
from pileus.kube.errors import Conflict
from pileus.runtime.backoff import service_policy
from pileus.runtime.controller import Controller, Limits
from pileus.runtime.queue import WorkQueue
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.journal import Entry, Journal, Line, Subject
from pileus.telemetry.journal_settings import JournalSettings
from pileus.telemetry.journal_sinks import SinkUnavailable, journal_sinks
from pileus.telemetry.metrics import Metrics
from pileus.telemetry.passes import (
    Pass,
    calling,
    observed,
    part_of_pass,
    passing,
    planned,
    recording,
    requested,
    wrote,
)
from pileus.testing.scripted import Answer as Reply
from pileus.testing.scripted import ScriptedTransport, in_order, refused
from pileus.testing.virtual_time import LoopClock

NODE = Subject(kind="Node", name="web-1")
LINE = Line(place="cluster", action="update", summary="addresses")


@dataclass
class Kept:
    passes: list[Pass] = field(default_factory=list[Pass])
    entries: list[Entry] = field(default_factory=list[Entry])

    def __call__(self, this: Pass, entries: object) -> None:
        self.passes.append(this)
        self.entries += entries  # type: ignore[operator]


@dataclass(frozen=True)
class Doing:
    act: Callable[[str], Awaitable[Result]]

    async def reconcile(self, key: str) -> Result:
        return await self.act(key)


async def passed(act: Callable[[str], Awaitable[Result]], *keys: str, seconds: float = 1) -> Kept:
    """Runs one pass for each key, and perhaps retries."""
    kept, metrics = Kept(), Metrics(MetricRegistry())
    queue = WorkQueue[str]("things", metrics)
    policy = service_policy(random.Random(1))
    controller = Controller("things", Doing(act), queue, policy, Limits(workers=9))
    with recording(LoopClock(), kept):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(controller.run())
            for key in keys or ("web-1",):
                queue.add(key)
            await asyncio.sleep(seconds)
            task.cancel()
    return kept


async def test_a_pass_is_recorded_with_what_it_observed_and_planned() -> None:
    async def act(_: str) -> Result:
        observed(NODE, "instance i-1")
        planned([(NODE, LINE)])
        await asyncio.sleep(0.25)
        return again_in(30)

    (entry,) = (await passed(act)).entries
    assert (entry.object, entry.controller, entry.observed) == (NODE, "things", "instance i-1")
    assert (entry.plan, entry.result, entry.next_in, entry.seconds) == ((LINE,), "done", 30, 0.25)


async def test_a_quiet_pass_has_no_entry_but_reaches_the_sinks() -> None:
    async def act(_: str) -> Result:
        observed(NODE, "instance i-1")
        planned([])
        return DONE

    kept = await passed(act)
    assert (len(kept.passes), kept.entries) == (1, [])


async def test_a_failed_pass_says_why_and_when_it_is_retried() -> None:
    async def act(_: str) -> Result:
        observed(NODE)
        raise Unavailable("the cloud is down")

    (entry,) = (await passed(act)).entries
    assert (entry.result, entry.message) == ("failed", "the cloud is down")
    assert entry.next_in is not None
    assert 4 <= entry.next_in <= 6


async def test_a_pass_without_an_object_is_about_its_controller() -> None:
    async def act(_: str) -> Result:
        raise Unavailable("no routes")

    (entry,) = (await passed(act)).entries
    assert entry.object == Subject(kind="Controller", name="things")


async def test_a_pass_that_the_fence_stopped_is_no_failure() -> None:
    async def act(_: str) -> Result:
        observed(NODE)
        planned([(NODE, LINE)])
        raise Fenced("lease is too old")

    (entry,) = (await passed(act, seconds=0.5)).entries
    assert (entry.result, entry.message) == ("stopped", "not leader")


async def test_a_later_plan_of_a_pass_replaces_lines_about_the_same_change() -> None:
    async def act(_: str) -> Result:
        early = msgspec.structs.replace(LINE, details=("? → set by the cloud",), waits_for="it")
        planned([(NODE, early)])
        planned([(NODE, msgspec.structs.replace(LINE, details=("? → 192.0.2.1",)))])
        return DONE

    (entry,) = (await passed(act)).entries
    assert [(line.details, line.waits_for) for line in entry.plan] == [(("? → 192.0.2.1",), "")]


async def test_secrets_in_texts_are_masked() -> None:
    async def act(_: str) -> Result:
        observed(NODE, "password=hunter2")
        planned([(NODE, Line(summary="token: abcdefgh", reason="Bad", details=()))])
        raise Unavailable("GET /: Authorization: Bearer abcdefgh12345")

    (entry,) = (await passed(act)).entries
    text = msgspec.json.encode(entry).decode()
    assert "hunter2" not in text
    assert "abcdefgh" not in text


async def test_parts_of_a_round_are_entries_of_their_own_with_the_calls_before() -> None:
    other = Subject(kind="Node", name="web-2")

    async def part(subject: Subject) -> None:
        with part_of_pass():
            planned([(subject, LINE)])

    async with fake_cloud() as (cloud, _):

        async def act(_: str) -> Result:
            await cloud.find([NodeRef(name=NodeName("web-1"))], fresh=True)
            await part(NODE)
            await part(other)
            return DONE

        kept = await passed(act)

    assert [each.object for each in kept.entries] == [NODE, other]
    assert [[call.method for call in each.calls] for each in kept.entries] == [
        ["instances.find"]
    ] * 2


class Cloudy:
    """Instances behind HTTP: each call is two requests, and each answer has a request ID."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails = False

    async def find(self, nodes: list[NodeRef], *, fresh: bool) -> dict[NodeName, object]:
        self.calls += 1
        http = Http(HttpSettings(base_url="https://cloud.example/v1"), self._send)
        await http.request("GET", "/servers", query={"token": "secret"})
        await http.request("GET", "/flavors")
        return {
            each.name: Instance(id=InstanceId(each.name), provider_id=f"x://{each.name}")
            for each in nodes
        }

    async def _send(self, request: CloudRequest) -> Answer:
        await asyncio.sleep(0.5)
        status = 503 if self.fails else 200
        return Answer(status, {}, b"", request, f"req-{self.calls}")


@asynccontextmanager
async def fake_cloud() -> AsyncGenerator[tuple[Instances, Cloudy]]:
    cloudy, metrics = Cloudy(), Metrics(MetricRegistry())
    cloud = Cloud(name="fake", instances=cloudy)  # type: ignore[arg-type]
    async with stacked(cloud, metrics=metrics, fence=Open(), equipment=Equipment()) as ready:
        assert ready.instances is not None
        yield ready.instances, cloudy


async def test_a_call_that_passes_share_belongs_to_each_with_its_request_ids() -> None:
    async with fake_cloud() as (cloud, cloudy):

        async def act(key: str) -> Result:
            subject = Subject(kind="Node", name=key)
            await cloud.find([NodeRef(name=NodeName(key))], fresh=True)
            planned([(subject, LINE)])
            return DONE

        kept = await passed(act, "web-1", "web-2", "web-3", seconds=5)

    assert cloudy.calls == 1
    assert sorted(each.object.name for each in kept.entries) == ["web-1", "web-2", "web-3"]
    for each in kept.entries:
        (call,) = each.calls
        assert (call.method, call.items, call.result) == ("instances.find", 3, "success")
        assert call.seconds == pytest.approx(1.0)
        assert [(one.request, one.status, one.id) for one in call.requests] == [
            ("GET /v1/servers", 200, "req-1"),
            ("GET /v1/flavors", 200, "req-1"),
        ]


async def test_a_failed_call_says_which_error_it_was() -> None:
    async with fake_cloud() as (cloud, cloudy):
        cloudy.fails = True

        async def act(key: str) -> Result:
            observed(NODE)
            await cloud.find([NodeRef(name=NodeName(key))], fresh=True)
            return DONE

        (entry,) = (await passed(act, seconds=3)).entries

    (call,) = entry.calls
    assert call.result == "Unavailable"
    assert "503" in call.message
    assert call.requests[0].id == "req-1"


async def test_writes_are_recorded_with_status_and_audit_id_and_reads_are_not() -> None:
    audited = Reply(200, {}, {"Audit-Id": "audit-7"})
    transport = ScriptedTransport(in_order(Reply(200, {}), audited, refused(409, "Conflict")))
    client = Client(transport, user_agent="test", metrics=Metrics(MetricRegistry()))

    async def act(_: str) -> Result:
        observed(NODE)
        await client.raw("GET", "/api/v1/nodes/web-1")
        await client.raw("PATCH", "/api/v1/nodes/web-1")
        with pytest.raises(Conflict):
            await client.raw("PATCH", "/api/v1/nodes/web-1/status")
        return DONE

    (entry,) = (await passed(act)).entries
    assert [(each.request, each.status, each.id) for each in entry.writes] == [
        ("PATCH /api/v1/nodes/web-1", 200, "audit-7"),
        ("PATCH /api/v1/nodes/web-1/status", 409, ""),
    ]
    assert entry.writes[1].message


async def test_a_round_about_several_objects_gives_each_its_own_writes() -> None:
    transport = ScriptedTransport(in_order(Reply(200, {})))
    client = Client(transport, user_agent="test", metrics=Metrics(MetricRegistry()))
    near = Subject(kind="Node", name="web-11")

    async def act(_: str) -> Result:
        planned([(NODE, LINE), (near, LINE)])
        await client.raw("PATCH", "/api/v1/nodes/web-11/status")
        return DONE

    kept = await passed(act)
    assert [(each.object.name, len(each.writes)) for each in kept.entries] == [
        ("web-1", 0),
        ("web-11", 1),
    ]


async def test_nothing_is_kept_outside_of_a_recording() -> None:
    planned([(NODE, LINE)])
    observed(NODE, "nothing")
    with part_of_pass():
        planned([(NODE, LINE)])


async def test_the_file_has_a_line_for_each_decision_and_is_rotated(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    async with journal_sinks(JournalSettings(file=str(file), file_size=40_000)) as (sink,):
        for number in range(200):
            this = Pass("things", 0.0)
            this.done()
            this.planned(NODE, Line(place="cloud", action="create", summary=f"{number:0>300}"))
            sink(this, this.entries(LoopClock().now()))

    old = (tmp_path / "history.jsonl.1").read_bytes().splitlines()
    new = file.read_bytes().splitlines()
    assert file.stat().st_size <= 40_000
    last = msgspec.json.decode(new[-1], type=Entry)
    assert last.plan[0].summary.endswith("199")
    assert old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["history.jsonl", "history.jsonl.1"]


async def test_a_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    settings = JournalSettings(file=str(tmp_path / "missing" / "history.jsonl"))
    with pytest.raises(SinkUnavailable, match="--history-file=.* cannot be written: No such file"):
        async with journal_sinks(settings):
            raise AssertionError("must not start")


async def test_a_file_that_cannot_be_written_later_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    settings = JournalSettings(file=str(folder / "history.jsonl"))
    async with journal_sinks(settings) as (sink,):
        (folder / "history.jsonl").unlink()
        folder.rmdir()
        for _ in range(3):
            this = Pass("things", 0.0)
            this.failed(Unavailable("no"))
            sink(this, this.entries(LoopClock().now()))
            await asyncio.sleep(1)

    assert [each.message for each in caplog.records].count("Cannot write history file") == 1


async def test_a_sink_that_fails_stops_neither_the_pass_nor_the_other_sinks() -> None:
    def broken(_: Pass, __: object) -> None:
        raise UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed")

    kept = Kept()
    with recording(LoopClock(), broken, kept), passing("things"):
        planned([(NODE, LINE)])
    assert len(kept.entries) == 1


async def test_no_text_of_a_cloud_or_an_api_server_breaks_the_journal(tmp_path: Path) -> None:
    odd = "a\udc80"
    journal = Journal(LoopClock().now())
    async with journal_sinks(JournalSettings(file=str(tmp_path / "history.jsonl"))) as sinks:
        with recording(LoopClock(), journal.record, *sinks), passing("things") as this:
            observed(NODE, odd)
            planned([(NODE, Line(summary=odd, reason="Why", details=(odd,)))])
            wrote(f"PATCH /{odd}", 0.0, 500, odd, odd)
            with calling("instances.find", 1, is_write=False):
                requested(f"GET /{odd}", 500, 0.0, odd)
            this.failed(Unavailable(odd))
    assert len(journal) == 1
    (line,) = (tmp_path / "history.jsonl").read_bytes().splitlines()
    assert rb"a\\udc80" in line


@pytest.mark.parametrize("exists", [False, True])
async def test_a_history_file_is_only_for_its_user(tmp_path: Path, exists: bool) -> None:
    file, former = tmp_path / "history.jsonl", tmp_path / "history.jsonl.1"
    for each in (file, former) if exists else ():
        each.write_bytes(b"{}\n")
        each.chmod(0o644)
    before = os.umask(0)
    try:
        async with journal_sinks(JournalSettings(file=str(file))):
            pass
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert former.exists() is exists
    assert not exists or former.stat().st_mode & 0o777 == 0o600
