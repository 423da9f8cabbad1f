"""The program as a user starts it, on a real control plane, with a cloud that is a file."""

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from pileus.testing.control_plane import ControlPlane, free_ports
from tests.contract.api.http import STRATEGIC, Api

LAB = Path(__file__).parent / "lab"
PROGRAM = Path(sys.executable).parent / "cloud-controller-manager"
LIMIT = 60.0
SHOWN = 6000
"""Characters of a manager's log that a failure shows."""
CALM_LEASE = ("--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=45s")
"""A machine that stands still for seconds must not cost a manager its lease, and a test its end."""
QUICK_LEASE = (
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
)


def eventually(what: str, holds: Callable[[], Any], limit: float = LIMIT) -> Any:
    """Poll until something holds, and return it; a failure says what was waited for."""
    deadline = time.monotonic() + limit
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {limit:g} s: {what}"
        time.sleep(0.1)


class Lab:
    """The cloud."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.config = folder / "cloud-config"
        self.config.write_text(f"{folder}\n")
        self.calls_file = folder / "calls"
        self.set()

    def set(self, **cloud: Any) -> None:
        (self.folder / "cloud.new").write_text(json.dumps(cloud))
        (self.folder / "cloud.new").rename(self.folder / "cloud.json")

    @property
    def own_work(self) -> list[str]:
        """What the lab's own controller wrote down: `started`, and `stopped` when it ended."""
        file = self.folder / "own-work"
        return file.read_text().split() if file.exists() else []

    @property
    def calls(self) -> list[int]:
        """How many nodes each look-up was about."""
        if not self.calls_file.exists():
            return []
        return [int(line) for line in self.calls_file.read_text().split()]


class Manager:
    """One process. Its log is a file, its port one of its own."""

    def __init__(
        self,
        cluster: ControlPlane,
        lab: Lab,
        kubeconfig: Path,
        *flags: str,
        providers: Path = LAB,
        program: Path = PROGRAM,
    ) -> None:
        self._cluster = cluster
        self.port = free_ports(1)[0]
        self.log = lab.folder / f"manager-{self.port}.log"
        command = [
            str(program),
            "--cloud-provider=lab",
            f"--cloud-config={lab.config}",
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={cluster.admin}",
            f"--authorization-kubeconfig={cluster.admin}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            *CALM_LEASE,
            *flags,
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": str(providers)}
            )

    def get(self, path: str) -> tuple[int, str]:
        trust = ssl.create_default_context()
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
        trust.load_cert_chain(self._cluster.folder / "admin.pem")
        try:
            url = f"https://127.0.0.1:{self.port}{path}"
            with urllib.request.urlopen(url, context=trust, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name whose labels match."""
        _, text = self.get("/metrics")
        total = 0.0
        for line in text.splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if found and found[1] == name:
                have = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
                if labels.items() <= have.items():
                    total += float(found[3])
        return total

    def wait_leading(self) -> None:
        eventually("leading", lambda: self.is_alive() and self.leads())

    def leads(self) -> bool:
        return self.metric("leader_election_master_status") == 1

    def is_alive(self) -> bool:
        assert self.process.poll() is None, self.story()
        return True

    def story(self) -> str:
        """Whether it lives, and what it logged last."""
        code = self.process.poll()
        state = "runs" if code is None else f"has ended with {code}"
        return f"the manager {state}; its log ends so:\n{self.log.read_text()[-SHOWN:]}"

    def end(self, sign: signal.Signals = signal.SIGTERM) -> int:
        """Signal it, wait for its end, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
        return self.process.wait(30)


@contextlib.contextmanager
def running(
    cluster: ControlPlane,
    lab: Lab,
    *flags: str,
    kubeconfig: Path | None = None,
    providers: Path = LAB,
    program: Path = PROGRAM,
) -> Generator[Manager]:
    """The manager with the lab's cloud, or with the providers installed in another folder."""
    manager = Manager(
        cluster, lab, kubeconfig or cluster.admin, *flags, providers=providers, program=program
    )
    try:
        yield manager
    except BaseException as error:
        error.add_note(manager.story())
        raise
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            manager.end()
        if manager.process.poll() is None:
            manager.process.kill()
            manager.process.wait()


UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"


def register(cluster: ControlPlane, *names: str) -> None:
    """Register nodes as kubelets with `--cloud-provider=external` do."""
    taint = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"taints": [taint]},
        }
        for name in names
    ]
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(listed))


def say_ready(cluster: ControlPlane, status: str, *names: str) -> None:
    """Have the kubelets of nodes (or who misses them) say whether they are ready."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {"type": "Ready", "status": status, "lastTransitionTime": now, "reason": "Lab"}
    api = Api.of_kubeconfig(cluster.admin)
    for name in names:
        path = f"/api/v1/nodes/{name}/status"
        said = api.patch(path, {"status": {"conditions": [ready]}}, STRATEGIC)
        assert said.status == 200, said


def get(cluster: ControlPlane, path: str) -> dict[str, Any]:
    """What the API server has there. For what is asked again and again: no kubectl is started."""
    found = Api.of_kubeconfig(cluster.admin).get(path)
    assert found.status == 200, found
    return found.body


def node(cluster: ControlPlane, name: str) -> dict[str, Any]:
    return get(cluster, f"/api/v1/nodes/{name}")


def events(cluster: ControlPlane) -> list[dict[str, Any]]:
    """In the namespace `default`, where those about nodes are too."""
    return get(cluster, "/api/v1/namespaces/default/events")["items"]


def is_told(cluster: ControlPlane, reason: str) -> bool:
    return any(each["reason"] == reason for each in events(cluster))


def is_initialized(cluster: ControlPlane, name: str) -> bool:
    taints = node(cluster, name)["spec"].get("taints", [])
    return all(taint["key"] != UNINITIALIZED for taint in taints)
