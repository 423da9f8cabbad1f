"""What the program lives through without a cluster: it waits, says so, and ends when told to."""

import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.api_server import Refusing, refusing
from tests.system.program import LIMIT, PROGRAM, distribution, environment, kubeconfig, provider

RETRY = 0.5
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
