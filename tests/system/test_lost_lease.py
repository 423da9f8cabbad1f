"""A lost lease ends the process within a bound, whatever the provider does."""

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import pileus
from pileus.kube.client import Client
from pileus.kube.config.choose import load_access
from pileus.kube.http import HttpTransport
from pileus.kube.model.core_v1 import NODES
from pileus.telemetry.metrics import Metrics
from tests.system.program import LIMIT, PROGRAM, distribution, environment
from tests.system.test_waiting import end, wait_for

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
    metrics = Metrics(CollectorRegistry())
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


@pytest.mark.parametrize("how", WAITS)
def test_a_provider_that_does_not_end_does_not_outlive_the_lease(tmp_path: Path, how: str) -> None:
    port = free_port()
    with (
        api_server(tmp_path) as kubeconfig,
        leading(tmp_path, kubeconfig, STUBBORN.format(wait=WAITS[how]), port) as (process, log),
    ):
        wait_for(log, "Started controller")
        asyncio.run(send(kubeconfig, "POST", NODES.path(), NODE))
        wait_for(log, CALLED)
        asyncio.run(send(kubeconfig, "PATCH", LEASE, {"spec": {"holderIdentity": "another"}}))
        wait_for(log, "leaderelection lost")
        assert health(port) == 500

        assert process.wait(LIMIT) == 1
    assert "Ended without waiting any longer" in log.read_text()


@pytest.mark.parametrize("how", WAITS)
def test_a_provider_that_does_not_end_does_not_outlive_a_signal(tmp_path: Path, how: str) -> None:
    with (
        api_server(tmp_path) as kubeconfig,
        leading(tmp_path, kubeconfig, STUBBORN.format(wait=WAITS[how]), 0) as (process, log),
    ):
        wait_for(log, "Started controller")
        asyncio.run(send(kubeconfig, "POST", NODES.path(), NODE))
        wait_for(log, CALLED)

        assert end(process) == 1
    assert "Ended without waiting any longer" in log.read_text()
