"""What the program lives through without a cluster: it waits, says so, and ends when told to."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pileus.testing.control_plane import free_ports
from tests.system.api_server import Refusing, refusing
from tests.system.program import LIMIT, PROGRAM, distribution, environment, kubeconfig, provider

RETRY = 0.5
DOWN = "https://127.0.0.1:1"
NOT_READY = "API server is not ready"
IN_A_POD = """
import sys
from pathlib import Path
from pileus.kube.config import choose
object.__setattr__(choose.HERE, "service_account", Path({folder!r}))
from pileus.cli.main import cloud_controller_manager
sys.exit(cloud_controller_manager())
"""
"""The program in a pod: its service account is mounted elsewhere."""
LOCK = "error retrieving resource lock"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    with refusing(tmp_path_factory.mktemp("api")) as server:
        yield server


@contextmanager
def running(folder: Path, code: str, kube: Path) -> Generator[tuple[subprocess.Popen[bytes], Path]]:
    """The program with leader election and without a port, and the file of its log."""
    distribution(folder / "site", "mine", code)
    log = folder / "log"
    flags = ["--cloud-provider=mine", f"--kubeconfig={kube}", "--secure-port=0"]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [PROGRAM, *flags, f"--leader-elect-retry-period={RETRY}s"],
            stderr=sink,
            env=environment(folder / "site"),
        )
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


@dataclass
class Configured:
    """Ways to configure the access to an API server that is down."""

    folder: Path

    def file(self, name: str, **user: object) -> str:
        path = kubeconfig(self.folder / name, DOWN)
        if user:
            config = json.loads(path.read_text())
            config["users"][0]["user"] = user
            path.write_text(json.dumps(config))
        return str(path)

    def plugin(self) -> dict[str, object]:
        script = self.folder / "login"
        version = "client.authentication.k8s.io/v1"
        credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}}
        script.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
        script.chmod(0o700)
        return {"apiVersion": version, "command": "./login", "interactiveMode": "Never"}

    def pod(self) -> str:
        (self.folder / "token").write_text("t")
        return str(self.folder)


CONFIGURATIONS: dict[str, Callable[[Configured], list[str]]] = {
    "kubeconfig": lambda at: [f"--kubeconfig={at.file('a')}"],
    "exec plugin": lambda at: [f"--kubeconfig={at.file('a', exec=at.plugin())}"],
    "master": lambda _: [f"--master={DOWN}"],
    "in a pod": lambda _: [],
    "authentication-kubeconfig": lambda at: [
        f"--kubeconfig={at.file('a')}",
        f"--authentication-kubeconfig={at.file('b')}",
    ],
    "authentication-kubeconfig with exec plugin": lambda at: [
        f"--kubeconfig={at.file('a')}",
        f"--authentication-kubeconfig={at.file('b', exec=at.plugin())}",
    ],
    "authorization-kubeconfig": lambda at: [
        f"--kubeconfig={at.file('a')}",
        f"--authorization-kubeconfig={at.file('b')}",
    ],
}


MODES = ("--leader-elect=true", "--leader-elect=false", "--dry-run")


@pytest.mark.parametrize(
    ("configuration", "mode"),
    [
        *((each, MODES[0]) for each in CONFIGURATIONS),
        *((each, mode) for each in ("kubeconfig", "in a pod") for mode in MODES[1:]),
    ],
)
def test_an_absent_api_server_is_waited_for_in_every_configuration(
    tmp_path: Path, configuration: str, mode: str
) -> None:
    distribution(tmp_path / "site", "mine", provider("pass"))
    at, log = Configured(tmp_path), tmp_path / "log"
    flags = ["--cloud-provider=mine", "--bind-address=127.0.0.1", mode]
    flags += [f"--secure-port={free_ports(1)[0]}", f"--leader-elect-retry-period={RETRY}s"]
    environ, program = environment(tmp_path / "site"), [str(PROGRAM)]
    if configuration == "in a pod":
        program = [sys.executable, "-c", IN_A_POD.format(folder=at.pod())]
        environ |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    command = [*program, *flags, *CONFIGURATIONS[configuration](at)]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stderr=sink, env=environ)
    try:
        wait_for(log, LOCK if mode == MODES[0] else NOT_READY, times=2)
        wait_for(log, "Serving securely")  # its certificate is created meanwhile
        assert process.poll() is None
        assert end(process) == 0
    finally:
        process.kill()
        process.wait()

    assert "Connection refused" in log.read_text()


def wait_for(log: Path, text: str, times: int = 1) -> None:
    until = time.monotonic() + LIMIT
    while log.read_text().count(text) < times:
        assert time.monotonic() < until, f"not said {times} times: {text}\n{log.read_text()}"
        time.sleep(0.05)


def end(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(LIMIT)


Trust = Callable[[Refusing], tuple[str, dict[str, str]]]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        pytest.param(lambda _: ("https://127.0.0.1:1", {}), "Connection refused", id="down"),
        pytest.param(
            lambda api: (api.url, {"certificate-authority": str(api.other_authority_file)}),
            "its certificate is not trusted",
            id="another CA",
        ),
        pytest.param(
            lambda api: (api.url, {"certificate-authority": str(api.authority_file)}),
            "401 Unauthorized",
            id="false token",
        ),
    ],
)
def test_a_candidate_keeps_trying_at_its_pace_and_says_why(
    tmp_path: Path, api: Refusing, server: Trust, why: str
) -> None:
    url, trust = server(api)
    kube = kubeconfig(tmp_path / "kubeconfig", url, **trust)
    with running(tmp_path, provider("pass"), kube) as (process, log):
        wait_for(log, LOCK)
        before, began = len(api.requests), time.monotonic()
        wait_for(log, LOCK, times=4)
        asked, passed = len(api.requests) - before, time.monotonic() - began
        code = end(process)

    assert code == 0
    assert why in log.read_text()
    assert log.read_text().count(LOCK) <= 5 + passed / RETRY
    assert asked <= 2 * (1 + passed / RETRY), "a second try with renewed credentials is allowed"


def test_a_provider_that_hangs_while_it_connects_does_not_outlive_a_signal(tmp_path: Path) -> None:
    kube = kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1")
    hangs = provider(
        "import asyncio; print('here', file=__import__('sys').stderr, flush=True); "
        "await asyncio.Event().wait()"
    )
    with running(tmp_path, hangs, kube) as (process, log):
        wait_for(log, "here")

        assert end(process) == 0
    assert "Traceback" not in log.read_text()
