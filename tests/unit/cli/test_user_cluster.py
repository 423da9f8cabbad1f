"""Commands that a user runs, on a served API and a served cloud: found as kubectl finds them."""

import asyncio
import json
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import pytest
import yaml

from pileus.pki import Authority
from pileus_lab.apiserver.server import ServerInfo, Settings, serving_api
from pileus_lab.local.http_api import serving
from tests.unit.providers.local.clouds import local_cloud

pytestmark = pytest.mark.real_time


@dataclass(frozen=True)
class Served:
    api: ServerInfo
    endpoint: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """An API server on loopback and a cloud, in a thread of their own."""
    endpoint = tmp_path_factory.mktemp("cloud") / "local.sock"
    ready, done = threading.Event(), asyncio.Event()
    found: list[Served] = []
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(done.set))
        async with serving_api(Settings(port=0)) as api, serving(local_cloud(), endpoint):
            found.append(Served(api, endpoint))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    stop[0]()
    thread.join()


class Shell:
    def __init__(self, served: Served, folder: Path) -> None:
        self.served = served
        self.folder = folder
        self.environ = {"PILEUS_LOCAL": str(served.endpoint), "HOME": str(folder)}

    def write(self, name: str, token: str = "") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.served.api.kubeconfig(token))
        path.chmod(0o600)
        return path

    def __call__(
        self, *arguments: str, out: int | TextIO = subprocess.PIPE
    ) -> tuple[int, str, str]:
        line = [arguments[0], "--cloud-provider=local", *arguments[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "pileus", *line],
            env=self.environ,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(served, tmp_path)


@pytest.mark.parametrize(
    ("command", "way"),
    [("plan", "flag"), ("plan", "variable"), ("plan", "default file"), ("orphans", "variable")],
)
def test_the_cluster_is_found_by_flag_variable_and_default_file(
    shell: Shell, command: str, way: str
) -> None:
    path = shell.write(".kube/config" if way == "default file" else "elsewhere")
    if way == "variable":
        shell.environ["KUBECONFIG"] = str(path)
    flags = [f"--kubeconfig={path}"] if way == "flag" else []

    code, out, err = shell(command, *flags)

    assert (code, err) == (0, "")
    assert "No changes." in out or "No orphaned load balancers" in out


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "line",
    [["plan"], ["plan", "--output=json"], ["orphans"], ["doctor"]],
    ids="-".join,
)
def test_a_report_on_a_full_disk_is_an_error_without_a_traceback(
    shell: Shell, line: list[str], unbuffered: str
) -> None:
    shell.environ |= {"PYTHONUNBUFFERED": unbuffered, "KUBECONFIG": str(shell.write("config"))}

    with Path("/dev/full").open("w") as full:
        code, _, err = shell(*line, out=full)

    assert (code, err) == (1, "Error: the output cannot be written: No space left on device\n")


def test_the_namespace_of_a_service_is_that_of_flag_or_context(shell: Shell) -> None:
    config = json.loads(shell.write("config").read_text())
    config["contexts"][0]["context"]["namespace"] = "of-context"
    (shell.folder / "config").write_text(json.dumps(config))
    shell.environ["KUBECONFIG"] = str(shell.folder / "config")

    assert '"of-context/web"' in shell("explain", "service", "web")[2]
    assert '"other/web"' in shell("explain", "-n", "other", "service", "web")[2]
    assert '"third/web"' in shell("plan", "service", "third/web")[2]


@pytest.mark.parametrize(
    "line",
    [["plan"], ["orphans"], ["explain", "node", "n1"]],
)
def test_a_401_names_user_context_and_file_and_what_to_run(shell: Shell, line: list[str]) -> None:
    path = shell.write(".kube/config", "expired-token")

    code, out, err = shell(*line)

    assert (code, out) == (1, "")
    assert f'user "pileus" (context "pileus" of {path})' in err
    assert f"kubectl --kubeconfig={path} --context=pileus auth whoami" in err
    assert "expired-token" not in err


@pytest.mark.parametrize(
    "line",
    [
        ["plan"],
        ["explain", "node", "web-1"],
        ["orphans"],
        ["doctor"],
        ["history"],
        ["top", "--once"],
    ],
    ids=lambda line: line[0],
)
def test_an_api_server_that_is_not_trusted_is_an_error_at_once_with_the_fix(
    shell: Shell, line: list[str]
) -> None:
    other = Authority("another cluster", now=datetime.now(UTC)).certificate
    kubeconfig = shell.write("config")
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["certificate-authority-data"] = b64encode(other).decode()
    kubeconfig.write_text(yaml.safe_dump(config))

    code, out, err = shell(*line, f"--kubeconfig={kubeconfig}")

    assert code == (2 if line == ["doctor"] else 1)
    assert "its certificate is not trusted" in out + err
    assert "ix: compare the CA of the kubeconfig with that of the cluster" in out + err
    assert "kubectl cluster-info" not in out + err


def test_without_any_cluster_the_ways_are_named(shell: Shell) -> None:
    code, _, err = shell("plan")

    assert code == 1
    assert "give --kubeconfig=FILE, set KUBECONFIG, or create ~/.kube/config" in err


def test_the_manager_reads_neither_the_variable_nor_the_default_file(shell: Shell) -> None:
    shell.environ["KUBECONFIG"] = str(shell.write(".kube/config"))

    code, _, err = shell("run", "--secure-port=0")

    assert code == 1
    assert "no API server is configured" in err
