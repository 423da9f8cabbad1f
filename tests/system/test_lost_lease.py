"""A lost lease ends the process within a bound, whatever the provider does."""

import asyncio
import contextlib
import json
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import pileus
from pileus.kube.client import Client
from pileus.kube.config.choose import load_access
from pileus.kube.http import HttpTransport
from pileus.kube.model.core_v1 import NODES
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.system.program import LIMIT, PROGRAM, distribution, environment
from tests.system.test_waiting import wait_for

pytestmark = pytest.mark.real_time

SOURCE = Path(pileus.__file__).parents[1]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
CALLED = "the provider was called"
TAINT = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}
NODE = {"metadata": {"name": "n1"}, "spec": {"taints": [TAINT]}}

STUBBORN = """
import asyncio, sys, time
from contextlib import asynccontextmanager
from pileus.cloud.interface import Cloud

class Instances:
    async def find(self, nodes, *, fresh):
        print("the provider was called", file=sys.stderr, flush=True)
        while True:
            try:
                await {wait}
            except BaseException:
                pass

@asynccontextmanager
async def connect(config):
    yield Cloud(name="mine", instances=Instances())
"""
WAITS = {
    "swallows its cancellation": "asyncio.sleep(3600)",
    "hangs in a thread": "asyncio.to_thread(time.sleep, 3600)",
}


@dataclass(frozen=True)
class Hanging:
    """A leader whose provider was called, and does not end."""

    how: str
    port: int
    kubeconfig: Path
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def api_server(folder: Path) -> Generator[Path]:
    """An embedded API server, and the kubeconfig to reach it."""
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "pileus", "apiserver", "--port=0"]
    with subprocess.Popen(
        [*command, f"--kubeconfig-out={kubeconfig}"], stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            server.stderr.readline()
            server.stderr.readline()
            yield kubeconfig
        finally:
            server.kill()


async def send(kubeconfig: Path, method: str, path: str, body: object) -> None:
    metrics = Metrics(MetricRegistry())
    access = load_access(str(kubeconfig), "", {})
    async with HttpTransport(access) as transport:
        client = Client(transport, user_agent="test", metrics=metrics)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        await client.raw(method, path, body=json.dumps(body).encode(), content_type=kind)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def health(port: int) -> int:
    """The status of /healthz; 0 if there is no answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.suppress(OSError):
        try:
            url = f"https://127.0.0.1:{port}/healthz"
            return urllib.request.urlopen(url, context=context, timeout=2).status
        except urllib.error.HTTPError as error:
            return error.code
    return 0


@contextmanager
def leading(
    folder: Path, kubeconfig: Path, code: str, port: int
) -> Generator[tuple[subprocess.Popen[bytes], Path]]:
    distribution(folder / "site", "mine", code)
    flags = [
        "--cloud-provider=mine",
        f"--kubeconfig={kubeconfig}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--leader-elect-lease-duration=4s",
        "--leader-elect-renew-deadline=3s",
        "--leader-elect-retry-period=500ms",
    ]
    log = folder / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [PROGRAM, *flags], stderr=sink, env=environment(folder / "site", SOURCE)
        )
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


@contextmanager
def hanging(folder: Path) -> Generator[list[Hanging]]:
    """A leader with each of the providers, side by side: what they wait for takes seconds."""
    with ExitStack() as stack:
        begun = [stack.enter_context(_leader(folder / str(n), how)) for n, how in enumerate(WAITS)]
        for each in begun:
            wait_for(each.log, "Started controller")
            asyncio.run(send(each.kubeconfig, "POST", NODES.path(), NODE))
        for each in begun:
            wait_for(each.log, CALLED)
        yield begun


@contextmanager
def _leader(folder: Path, how: str) -> Generator[Hanging]:
    folder.mkdir()
    port, code = free_port(), STUBBORN.format(wait=WAITS[how])
    with (
        api_server(folder) as kubeconfig,
        leading(folder, kubeconfig, code, port) as (process, log),
    ):
        yield Hanging(how, port, kubeconfig, process, log)


def test_a_provider_that_does_not_end_does_not_outlive_the_lease(tmp_path: Path) -> None:
    with hanging(tmp_path) as leaders:
        for each in leaders:
            lost = {"spec": {"holderIdentity": "another"}}
            asyncio.run(send(each.kubeconfig, "PATCH", LEASE, lost))
            wait_for(each.log, "leaderelection lost")
            assert health(each.port) == 500, each.how
        for each in leaders:
            assert each.process.wait(LIMIT) == 1, each.how
            assert "Exiting without waiting for unfinished tasks" in each.log.read_text(), each.how


def test_a_provider_that_does_not_end_does_not_outlive_a_signal(tmp_path: Path) -> None:
    with hanging(tmp_path) as leaders:
        for each in leaders:
            each.process.send_signal(signal.SIGTERM)
        for each in leaders:
            assert each.process.wait(LIMIT) == 1, each.how
            assert "Exiting without waiting for unfinished tasks" in each.log.read_text(), each.how
