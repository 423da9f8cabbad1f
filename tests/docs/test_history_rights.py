"""The rights of the guide "Read the history": enough to read it, and no way into other pods."""

import asyncio
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from pileus_lab.apiserver.server import ServerInfo, Settings, serving_api

pytestmark = pytest.mark.real_time

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "read-the-history.md"
KUBECTL = shutil.which(
    "kubectl", path=f"{os.environ.get('PILEUS_CONTROL_PLANE', '')}:{os.environ['PATH']}"
)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Generator[Path]:
    """An API server on loopback, in a thread of its own."""
    ready, done = threading.Event(), asyncio.Event()
    found: list[ServerInfo] = []
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(done.set))
        async with serving_api(Settings(port=0)) as api:
            found.append(api)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    path = tmp_path / "kubeconfig"
    path.write_bytes(found[0].kubeconfig(""))
    path.chmod(0o600)
    yield path
    stop[0]()
    thread.join()


def environment(kubeconfig: Path) -> dict[str, str]:
    path = f"{Path(str(KUBECTL)).parent}:{os.environ['PATH']}"
    return {"KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent), "PATH": path}


def may(kubeconfig: Path, group: str, *request: str) -> bool:
    done = subprocess.run(
        [
            str(KUBECTL),
            "auth",
            "can-i",
            *request,
            "--as=jane",
            f"--as-group={group}",
            "--namespace=kube-system",
        ],
        env=environment(kubeconfig),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() in {"yes", "no"}, done.stderr
    return done.stdout.strip() == "yes"


NEEDED = (
    ("get", "leases/cloud-controller-manager"),
    ("list", "pods"),
    ("get", "pods/https:pileus-a:10292", "--subresource=proxy"),
    ("get", "/history/v1/entries"),
)
"""What `pileus history` requests if the leader is the pod pileus-a."""
BEYOND = (
    ("get", "pods", "--subresource=proxy"),
    ("get", "pods/https:etcd-a:2379", "--subresource=proxy"),
    ("get", "pods/https:pileus-a:10250", "--subresource=proxy"),
    ("create", "pods/https:pileus-a:10292", "--subresource=proxy"),
    ("get", "leases/kube-controller-manager"),
    ("update", "leases/cloud-controller-manager"),
    ("list", "secrets"),
    ("get", "/metrics"),
)


@pytest.mark.skipif(not KUBECTL, reason="there is no kubectl")
def test_operators_can_read_the_history_and_reach_no_other_pod(kubeconfig: Path) -> None:
    commands = [
        line.strip().replace("POD", "pileus-a")
        for line in PAGE.read_text().splitlines()
        if re.match(r" {4}kubectl .*create (cluster)?role", line)
    ]
    for command in commands:
        subprocess.run(
            ["bash", "-c", command],
            env=environment(kubeconfig),
            check=True,
            stdout=subprocess.DEVNULL,
        )

    assert len(commands) == 8
    assert [each for each in NEEDED if not may(kubeconfig, "operators", *each)] == []
    assert [each for each in BEYOND if may(kubeconfig, "operators", *each)] == []
    assert [each for each in NEEDED if may(kubeconfig, "developers", *each)] == []
