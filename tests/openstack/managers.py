"""Cloud controller managers as processes on a kube-apiserver and OpenStack: Pileus, the Go one."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pileus.testing.control_plane import ControlPlane, free_ports
from tests.contract.api.http import MERGE, Api
from tests.openstack.cloud import Project, amid_changes, eventually
from tests.real.manager import register, say_ready

PILEUS = Path(sys.executable).parent / "cloud-controller-manager"
GO = "PILEUS_GO_OPENSTACK_CCM"
BINARIES = "PILEUS_CONTROL_PLANE"
SHOWN = 6000
SERVICES = "/api/v1/namespaces/default/services"
BALANCER_PORT = 80


@dataclass(frozen=True)
class Cluster:
    """A control plane and the project that its nodes are in."""

    control_plane: ControlPlane
    project: Project
    folder: Path
    config: Path
    name: str = "kubernetes"

    @property
    def api(self) -> Api:
        return Api.of_kubeconfig(self.control_plane.admin)

    def add_nodes(self, *names: str) -> None:
        register(self.control_plane, *names)
        say_ready(self.control_plane, "True", *names)

    def node(self, name: str) -> dict[str, Any]:
        return self._found(f"/api/v1/nodes/{name}")

    def service(self, name: str) -> dict[str, Any]:
        return self._found(f"{SERVICES}/{name}")

    def create_service(
        self,
        name: str,
        *ports: int,
        annotations: Mapping[str, str] | None = None,
        protocol: str = "TCP",
        **spec: Any,
    ) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "annotations": dict(annotations or {})},
            "spec": {
                "type": "LoadBalancer",
                "selector": {"app": name},
                "ports": [
                    {"name": f"p{port}", "port": port, "protocol": protocol}
                    for port in ports or (BALANCER_PORT,)
                ],
                **spec,
            },
        }
        made = self.api.post(SERVICES, body)
        assert made.status == 201, made

    def change_service(self, name: str, change: Mapping[str, Any]) -> None:
        changed = self.api.patch(f"{SERVICES}/{name}", dict(change), MERGE)
        assert changed.status == 200, changed

    def delete_service(self, name: str) -> None:
        deleted = self.api.delete(f"{SERVICES}/{name}")
        assert deleted.status == 200, deleted

    def has_service(self, name: str) -> bool:
        return self.api.get(f"{SERVICES}/{name}").status != 404

    def ingress(self, name: str) -> list[dict[str, Any]]:
        return self.service(name)["status"]["loadBalancer"].get("ingress", [])

    def events(self, name: str) -> list[tuple[str, str]]:
        """Returns reason and message of each event on an object."""
        found = self._found("/api/v1/namespaces/default/events")["items"]
        return [
            (each["reason"], each["message"])
            for each in found
            if each["involvedObject"]["name"] == name
        ]

    def _found(self, path: str) -> dict[str, Any]:
        found = self.api.get(path)
        assert found.status == 200, found
        return found.body


class Manager:
    """One process with a log file."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.port = free_ports(1)[0]
        self.log = folder / f"{name}-{self.port}.log"
        command = [*command, "--bind-address=127.0.0.1", f"--secure-port={self.port}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def eventually(self, what: str, holds: Callable[[], Any]) -> Any:
        """Polls until something holds, and returns it. Fails at once if the process has ended."""

        def checked() -> Any:
            assert self.process.poll() is None, "the manager has ended"
            return amid_changes(holds)

        return eventually(what, checked)

    def has_addresses(self, cluster: Cluster, *names: str) -> None:
        """Waits until the status of each Service has an address."""
        for name in names:
            self.eventually(f"{name} has an address", partial(cluster.ingress, name))

    def has_deleted(self, cluster: Cluster, *names: str) -> None:
        """Waits until each Service is deleted."""
        for name in names:
            self.eventually(f"{name} is deleted", lambda name=name: not cluster.has_service(name))

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def story(self) -> str:
        code = self.process.poll()
        state = "runs" if code is None else f"has ended with {code}"
        return f"{self.log.name}: the manager {state}; its log ends:\n{self.text()[-SHOWN:]}"


def go_command(cluster: Cluster, *flags: str) -> list[str]:
    return [
        os.environ[GO],
        "--cloud-provider=openstack",
        f"--cloud-config={cluster.config}",
        f"--kubeconfig={cluster.control_plane.admin}",
        f"--cluster-name={cluster.name}",
        "--leader-elect=false",
        "--authentication-skip-lookup=true",
        "--use-service-account-credentials=false",
        "--v=2",
        *flags,
    ]


def pileus_command(cluster: Cluster, *flags: str) -> list[str]:
    return [
        str(PILEUS),
        "--cloud-provider=openstack",
        f"--cloud-config={cluster.config}",
        f"--kubeconfig={cluster.control_plane.admin}",
        f"--cluster-name={cluster.name}",
        "--leader-elect=false",
        *flags,
    ]


@contextlib.contextmanager
def running(name: str, command: list[str], folder: Path) -> Generator[Manager]:
    manager = Manager(name, command, folder)
    try:
        yield manager
    except BaseException as error:
        error.add_note(manager.story())
        raise
    finally:
        manager.end()


def go_ccm(cluster: Cluster, *flags: str) -> contextlib.AbstractContextManager[Manager]:
    return running("go", go_command(cluster, *flags), cluster.folder)


def pileus(cluster: Cluster, *flags: str) -> contextlib.AbstractContextManager[Manager]:
    return running("pileus", pileus_command(cluster, *flags), cluster.folder)


def plan(cluster: Cluster, *flags: str) -> dict[str, Any]:
    """Runs `pileus plan -o json` and returns its output."""
    command = pileus_command(cluster, "-o", "json", *flags)
    done = subprocess.run(
        [str(PILEUS.with_name("pileus")), "plan", *command[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)
