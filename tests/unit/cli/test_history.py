"""`pileus history` and `pileus top`: finding the leader through the API server, and the output."""

import asyncio
import fcntl
import io
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from rich.console import Console

from pileus.app.history import Pod, pod_of, port_of
from pileus.cli.history import shown
from pileus.cli.main import dispatch
from pileus.cli.terminal import Style, Terminal
from pileus.cli.top import Frame, draw
from pileus.clock import SystemClock
from pileus.objects.preview import EVERYTHING, Scope
from pileus.server.history import ENTRIES, history_routes
from pileus.server.port import PortContext, secured
from pileus.server.reviews import Delegates, Verdict
from pileus.server.settings import ServerSettings
from pileus.server.users import User
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.journal import (
    Call,
    Entry,
    HttpRequest,
    Journal,
    Line,
    Question,
    Subject,
    Write,
    decoded,
)
from pileus.telemetry.metrics import Metrics
from tests.unit.server.people import client_context

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
HOST = "control-1_1f0c"
TOKEN = "dev"


def entry(**more: Any) -> Entry:
    given: dict[str, Any] = {
        "at": NOW,
        "first": NOW,
        "object": Subject(kind="Service", namespace="default", name="shop"),
        "controller": "service-lb-controller",
        "seconds": 0.5,
        "observed": "no load balancer",
        "plan": (
            Line(
                place="cloud",
                action="create",
                summary="balancer default-shop on 80/TCP",
                details=("flavor: small",),
            ),
        ),
        "calls": (
            Call(
                method="balancers.apply",
                started=0.1,
                seconds=0.4,
                is_write=True,
                requests=(
                    HttpRequest(request="POST /v2/lbaas", status=201, seconds=0.3, id="req-7"),
                ),
            ),
        ),
        "writes": (
            Write(
                request="PATCH /api/v1/namespaces/default/services/shop/status",
                started=0.4,
                seconds=0.1,
                status=200,
                id="audit-1",
            ),
        ),
        "result": "done",
        "next_in": 30.0,
    }
    return Entry(**{**given, **more})


def journal_with(*entries: Entry) -> Journal:
    journal = Journal(NOW - timedelta(hours=1), identity=HOST)
    for each in entries:
        journal.add(each)
    return journal


def text_of(journal: Journal, scope: Scope = EVERYTHING, form: str = "text") -> str:
    question = Question(kind=scope.kind, namespace=scope.namespace, name=scope.name)
    return shown(journal.history(question, NOW + timedelta(seconds=90)), scope, form, Style())


SHOP = Scope("Service", "default", "shop")


def test_a_timeline_reads_from_observation_to_result() -> None:
    told = text_of(journal_with(entry()), SHOP)

    assert told == (
        "Service default/shop: 1 decision, the newest last (leader control-1_1f0c)\n"
        "\n"
        "2026-11-17 12:00:00 (90s ago)  service-lb-controller  done in 0.5 s\n"
        "  observed  no load balancer\n"
        "  plan      + cloud: balancer default-shop on 80/TCP\n"
        "  calls     balancers.apply success in 0.4 s  request req-7\n"
        "  writes    PATCH /api/v1/namespaces/default/services/shop/status 200 in 0.1 s"
        "  audit audit-1\n"
        "  next      pass in 30 s\n"
    )


@pytest.mark.parametrize("width", [60, 80])
def test_the_title_of_a_timeline_fits_the_terminal(width: int) -> None:
    now = NOW + timedelta(seconds=90)
    history = journal_with(entry()).history(Question(), now)
    lines = shown(history, SHOP, "text", Style(width)).splitlines()

    assert lines[0].startswith("Service default/shop: 1 decision, the newest last")
    assert "leader control-1_1f0c" in "".join(lines[:2])
    assert max(map(len, lines[:2])) <= width


def test_wide_shows_details_and_requests_too() -> None:
    told = text_of(journal_with(entry()), SHOP, "wide")

    assert "  flavor: small\n" in told
    assert "POST /v2/lbaas 201 in 0.3 s  request req-7\n" in told


def test_without_an_object_there_is_a_table_of_all() -> None:
    failed = entry(
        object=Subject(kind="Node", name="web-1"), result="failed", message="no answer", writes=()
    )
    told = text_of(journal_with(entry(), failed, failed)).splitlines()

    assert told[0].split() == ["AGE", "OBJECT", "CONTROLLER", "RESULT", "DECISION"]
    assert "Service default/shop" in told[1]
    assert told[2].endswith("failed   no answer (x2)")
    wide = text_of(journal_with(entry()), EVERYTHING, "wide")
    assert wide.splitlines()[1].endswith("0.5       req-7")


def test_data_formats_have_the_same_fields() -> None:
    journal = journal_with(entry())
    found = json.loads(text_of(journal, SHOP, "json"))

    assert found == yaml.safe_load(text_of(journal, SHOP, "yaml"))
    assert found["entries"][0]["calls"][0]["requests"][0]["id"] == "req-7"


def test_no_decision_about_an_object_is_said_in_a_sentence() -> None:
    assert text_of(journal_with(), SHOP) == (
        "No decisions about Service default/shop: the manager found nothing to do since it "
        "started 61m ago (control-1_1f0c).\n"
    )


def pod(name: str, node: str, *, args: tuple[str, ...] = (), image: str = "pileus:1") -> Pod:
    import msgspec

    spec = {"nodeName": node, "containers": [{"name": "ccm", "image": image, "args": list(args)}]}
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Running"}}, Pod
    )


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("pileus-b", "pileus-b"),
        ("control-2", "pileus-b"),
        ("control-2.example.org", "pileus-b"),
        ("control-3", None),
    ],
)
def test_the_pod_of_the_leader_is_found_by_its_name_or_its_node(
    host: str, found: str | None
) -> None:
    others = pod("etcd", "control-2", image="etcd:3"), pod("etcd-3", "control-3", image="etcd:3")
    pods = (*others, pod("pileus-a", "control-1"), pod("pileus-b", "control-2"))

    one = pod_of(host, pods)
    assert (one.metadata.name if one else None) == found


def test_the_pod_of_another_manager_on_the_node_is_not_asked() -> None:
    words = ("cloud-controller-manager",)
    go = pod("openstack-cloud-controller-manager-x", "control-1", args=words, image="go:1")
    own = pod("pileus-cloud-controller-manager-x", "control-1", args=words, image="own:1")

    assert pod_of("control-1", (go, own)) is own
    assert pod_of("control-1", (go,)) is go


def test_the_port_is_that_of_the_command() -> None:
    assert port_of(pod("a", "n", args=("--secure-port=10300",)), 10258) == 10300
    assert port_of(pod("a", "n"), 10258) == 10258


def test_a_frame_of_top_fits_the_terminal() -> None:
    journal = journal_with(*(entry(at=NOW, controller=f"c{n}") for n in range(60)))
    history = journal.history(Question(), NOW)
    frame = Frame(history=history, entries=decoded(history), problem="the leader does not answer")
    for width, height in ((60, 20), (140, 30)):
        out = io.StringIO()
        console = Console(file=out, width=width, height=height)
        console.print(draw(frame, width, height))
        lines = out.getvalue().splitlines()
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
        assert "Decisions" in out.getvalue()
        assert "! the leader does not answer" in out.getvalue()


class Tokens:
    async def review(self, token: str) -> User | None:
        return User("developer") if token == TOKEN else None


class Access:
    async def review(self, user: User, verb: str, path: str) -> Verdict:
        return Verdict(allowed=(user.name, verb, path) == ("developer", "get", ENTRIES))


class ApiServer:
    """A Lease, a pod, and a proxy that removes the header Authorization, as kube-apiserver does."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.refused: tuple[str, int, str] = ("nothing", 0, "")
        """A part of a path, with the code and the reason of the answer."""
        self.renewed = datetime.now(UTC)
        self.pods = [
            {
                "metadata": {"name": "pileus-a"},
                "spec": {"nodeName": "control-1", "containers": [{"image": "pileus:1"}]},
                "status": {"phase": "Running"},
            }
        ]

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path
        part, code, reason = self.refused
        if part in path:
            status = {"kind": "Status", "status": "Failure", "reason": reason, "code": code}
            return web.json_response({**status, "message": reason.lower()}, status=code)
        if path.endswith("/leases/cloud-controller-manager"):
            spec = {
                "holderIdentity": HOST,
                "leaseDurationSeconds": 15,
                "renewTime": self.renewed.isoformat().replace("+00:00", "Z"),
            }
            return web.json_response({"metadata": {"name": "x"}, "spec": spec})
        if path == "/api/v1/namespaces/kube-system/pods":
            return web.json_response({"items": self.pods})
        mark = "/pods/https:pileus-a:10258/proxy"
        if mark in path:
            return await self._proxy(request, path.partition(mark)[2])
        said = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
        return web.json_response({**said, "message": f"{path} not found"}, status=404)

    async def _proxy(self, request: web.Request, path: str) -> web.Response:
        headers = {k: v for k, v in request.headers.items() if k.lower() != "authorization"}
        url = f"https://127.0.0.1:{self.port}{path}"
        connector = aiohttp.TCPConnector(ssl=client_context())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(url, headers=headers, params=request.query) as answer,
        ):
            kind = answer.content_type
            return web.Response(body=await answer.read(), status=answer.status, content_type=kind)


@asynccontextmanager
async def served(journal: Journal) -> AsyncGenerator[tuple[ApiServer, str]]:
    """The journal behind an API server; its URL."""
    around = PortContext(Metrics(MetricRegistry()), SystemClock(), Delegates(Tokens(), Access()))
    listener = socket.create_server(("127.0.0.1", 0))
    async with (
        secured(listener, ServerSettings(), around) as port,
        port.serving(history_routes(journal, SystemClock())) as address,
    ):
        api = ApiServer(address.port)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", api.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield api, f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


@contextmanager
def beside(journal: Journal) -> Generator[tuple[ApiServer, str]]:
    """The same, on a loop in another thread: a command runs a loop of its own."""
    loop, ready, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[tuple[ApiServer, str]] = []

    async def run() -> None:
        async with served(journal) as it:
            found.append(it)
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    assert ready.wait(30)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def kubeconfig(folder: Path, url: str, user: dict[str, str]) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "clusters": [{"name": "a", "cluster": {"server": url}}],
        "users": [{"name": "a", "user": user}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    file.chmod(0o600)
    return file


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(url: str, *arguments: str, token: str = TOKEN) -> tuple[int, str, str]:
        file = kubeconfig(tmp_path, url, {"token": token} if token else {})
        terminal = Terminal(io.StringIO(), io.StringIO(), {})
        code = dispatch([*arguments, f"--kubeconfig={file}"], terminal)
        return code, terminal.out.getvalue(), terminal.err.getvalue()  # type: ignore[attr-defined]

    return run


@pytest.mark.parametrize("limit", ["0", "-1"])
def test_a_limit_below_one_is_refused(run: Run, limit: str) -> None:
    code, out, err = run("http://127.0.0.1:1", "history", f"--limit={limit}")

    assert (code, out) == (1, "")
    assert err.endswith(f"Error: --limit={limit}: must be at least 1\n")


def test_the_leader_is_read_through_the_proxy_of_the_api_server(run: Run) -> None:
    with beside(journal_with(entry())) as (_, url):
        code, out, err = run(url, "history", "service", "shop")
        top = run(url, "top", "--once")

    assert code == 0, err
    assert "balancers.apply success" in out
    assert top[0] == 0
    assert "Service default/shop" in top[1]


def test_without_the_right_to_the_proxy_only_the_port_of_the_manager_is_asked_for(run: Run) -> None:
    """The name reaches no other port and no other pod: tests/docs/test_history_rights.py."""
    with beside(journal_with(entry())) as (api, url):
        api.refused = ("/proxy/", 403, 'User "jane" cannot get resource "pods/proxy"')
        code, _, err = run(url, "history")

    assert code == 1
    assert (
        "Fix: ask for the right to get pods/proxy of https:pileus-a:10258 alone in namespace "
        "kube-system (docs/guides/read-the-history.md)" in err
    )


@pytest.mark.real_time
def test_top_in_a_terminal_ends_with_q_echoes_nothing_and_restores_it(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(slave)
    with beside(journal_with(entry())) as (_, url):
        file = kubeconfig(tmp_path, url, {"token": TOKEN})
        command = [sys.executable, "-m", "pileus", "top", f"--kubeconfig={file}"]
        environment = {**os.environ, "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment
        ) as child:
            shown = read_until(master, b"Service default/shop")
            during = termios.tcgetattr(slave)
            os.write(master, b"zzzjjkq")
            code = child.wait(timeout=50)
        os.write(slave, b"END")
        shown += read_until(master, b"END")
    after = termios.tcgetattr(slave)
    os.close(slave)
    os.close(master)

    assert (code, after) == (0, before)
    assert not during[3] & (termios.ECHO | termios.ICANON)
    assert b"zzz" not in shown
    entered, left = shown.find(b"\x1b[?1049h"), shown.find(b"\x1b[?1049l")
    assert 0 <= entered < shown.find(b"default/shop") < left
    assert shown.find(b"\x1b[?25h", shown.find(b"\x1b[?25l")) > 0, "the cursor is shown again"


def read_until(terminal: int, text: bytes) -> bytes:
    """Returns what was written to a terminal. The limit of the test ends an endless wait."""
    found = b""
    while text not in found:
        found += os.read(terminal, 65536)
    return found


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (
            "",
            "your kubeconfig has none. Fix: kubectl create token NAME --namespace=NAMESPACE > FILE",
        ),
        ("nonsense", "Unauthorized. Fix: give a valid token with --token-file=FILE"),
    ],
)
def test_a_missing_or_wrong_token_is_said(run: Run, token: str, text: str) -> None:
    with beside(journal_with(entry())) as (_, url):
        code, _, err = run(url, "history", token=token)

    assert code == 1
    assert text in err


def test_errors_about_tokens_are_readable_although_tokens_are_masked(run: Run) -> None:
    with beside(journal_with(entry())) as (api, url):
        reach = (f"--server=https://127.0.0.1:{api.port}", "--insecure-skip-tls-verify")
        without = run(url, "history", *reach, token="")
        missing = run(url, "history", *reach, "--token-file=/no/such")

    assert "the manager got no token (GET /history/v1/entries: 403 Forbidden" in without[2]
    assert "--token-file=/no/such cannot be read: No such file or directory\n" in missing[2]


def test_a_manager_that_does_not_answer_is_not_called_an_api_server(run: Run) -> None:
    code, _, err = run("http://127.0.0.1:9", "history", "--server=https://127.0.0.1:9")

    assert code == 1
    assert "cannot reach the leader at --server=https://127.0.0.1:9: GET /history/v1" in err
    assert "cannot connect" in err
    assert "API server" not in err


def test_a_leader_that_is_gone_or_no_pod_is_said(run: Run) -> None:
    with beside(journal_with(entry())) as (api, url):
        api.pods = []
        no_pod = run(url, "history")
        api.renewed = NOW - timedelta(days=1)
        expired = run(url, "history")

    assert 'the leader "control-1" is not a pod of namespace kube-system' in no_pod[2]
    assert "Fix: give --server=https://control-1:PORT" in no_pod[2]
    assert "there is no leader" in expired[2]
    assert "is not held, or has expired" in expired[2]


@pytest.mark.parametrize("forbidden", ["/leases/", "/pods"])
def test_only_missing_rights_are_answered_with_the_flag_server(run: Run, forbidden: str) -> None:
    """Another address of the manager does not help against wrong credentials or an outage."""
    with beside(journal_with(entry())) as (api, url):
        api.refused = forbidden, 403, "Forbidden"
        without_right = run(url, "history")
        api.refused = forbidden, 401, "Unauthorized"
        without_token = run(url, "history")
    without_server = run(url, "history")

    assert "to find the leader" in without_right[2]
    assert "Fix: ask for the right to read" in without_right[2]
    assert "or give --server=https://HOST:PORT" in without_right[2]
    assert "renew them, then check with: kubectl" in without_token[2]
    assert "cannot connect" in without_server[2]
    assert "--server" not in without_token[2] + without_server[2]


def test_an_object_that_never_existed_gets_a_suggestion(run: Run) -> None:
    with beside(journal_with(entry())) as (_, url):
        code, _, err = run(url, "history", "service", "shpo")

    assert code == 1
    assert 'there is no Service "default/shpo", and no decision about it is recorded' in err
    assert 'did you mean "default/shop"?' in err


def test_a_standby_that_answers_is_not_taken_for_the_leader(run: Run) -> None:
    journal = journal_with(entry())
    journal.leads = lambda: False
    with beside(journal) as (_, url):
        code, _, err = run(url, "history")

    assert code == 1
    assert "answered by another replica" in err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--server=10.0.0.1",), '--server="10.0.0.1" is not a URL such as https://HOST:10258'),
        (("--server-ca=x",), "--server-ca needs --server"),
        (("-o", "wid"), "did you mean -o wide?"),
        (("nod", "x"), "did you mean node?"),
        (("--tokn-file=x",), "did you mean --token-file?"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_is_wrong(
    run: Run, arguments: tuple[str, ...], text: str
) -> None:
    code, _, err = run("http://127.0.0.1:9", "history", *arguments)

    assert code == 1
    assert text in err
