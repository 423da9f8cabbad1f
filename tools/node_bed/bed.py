"""A cluster with real nodes and a local cloud, in the namespaces that `tools.node_bed` made.

    address                what
    127.0.0.1              control plane
    10.77.0.1 to 3         the nodes, which are instances of the local cloud
    127.78.0.0/16          balancers of the local cloud

All nodes and the control plane share one network namespace. Each node has its own containerd,
kubelet and pod network, in its own mount and process namespaces: if it is switched off, the kernel
ends all its processes and mounts. kube-proxy serves the node ports of all.

Devices belong to the machine, so that every node sees the volumes of all: what shows that a volume
is on one node at a time are the mounts of the nodes and the attachments of the cloud.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tools.node_bed import files
from tools.node_bed.janitor import create_cgroups
from tools.node_bed.prepare import Prepared

from pileus.testing.control_plane import ControlPlane, leash

T = TypeVar("T")
USER = 65532
LIMIT = 180.0
POLL = 0.25
LOGS = Path(os.environ.get("PILEUS_NODE_BED_LOGS") or "build/e2e").absolute()


class Failed(Exception):
    """A part of the bed did not start; the message ends with its last log lines."""


@dataclass(frozen=True)
class Node:
    """One node: an instance of the cloud on which a kubelet runs."""

    name: str
    number: int

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def socket(self) -> str:
        return f"/run/containerd-{self.number}/containerd.sock"


NODES = (Node("node-1", 1), Node("node-2", 2))
SPARE = Node("node-3", 3)
"""A node that is not started with the others. It is in the zone of the first."""


class Bed:
    """The processes of a cluster, a cloud and two nodes. All they write is in one folder."""

    def __init__(self, folder: Path) -> None:
        given = json.loads((folder / "prepared.json").read_text())
        images = tuple(Path(each) for each in given.pop("images"))
        self.prepared = Prepared(images=images, **{k: Path(v) for k, v in given.items()})
        self.folder = folder
        self.audit_log = LOGS / "audit.jsonl"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._machines: dict[Node, str] = {}
        self.cluster = ControlPlane(
            self.prepared.control_plane,
            folder / "control-plane",
            arguments=files.api_server_arguments(folder, self.audit_log),
            with_service_accounts=True,
        )
        self.kubectl = self.cluster.kubectl

    @property
    def api_port(self) -> str:
        return self.cluster.server.rpartition(":")[2]

    def __enter__(self) -> Self:
        try:
            self._isolate()
            self.cluster.__enter__()
            self._start_managers()
            self._start_cloud()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for name in reversed(list(self._processes)):
            self.end(name)
        self.cluster.stop()

    def start_node(self, node: Node) -> None:
        """Switches the machine on: starts containerd, imports the images, starts the kubelet."""
        home = self.folder / node.name
        settings = {
            "cgroupRoot": f"/{self.folder.name}/{node.name}",
            "providerID": self.instances()[node.name],
        }
        create_cgroups(f"{self.folder.name}/{node.name}")
        files.write_node_files(home, node.number, self.prepared.debian, settings)
        self._switch_on(node, home)
        containerd = f"containerd-{node.number}"
        self._start_on(node, containerd, "containerd", f"--config={home}/containerd.toml")
        self.until(lambda: self._ctr(node, "version").returncode == 0, "containerd answers")
        for image in self.prepared.images:
            done = self._ctr(node, "images", "import", str(image))
            if done.returncode:
                raise Failed(f"containerd refused {image.name}: {done.stderr}")
        self.start_kubelet(node)

    def start_kubelet(self, node: Node) -> None:
        home = self.folder / node.name
        kubeconfig = self.cluster.user(f"system:node:{node.name}", groups=("system:nodes",))
        self._start_on(
            node,
            f"kubelet-{node.number}",
            "kubelet",
            f"--config={home}/kubelet.yaml",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={files.KUBELET}",
            f"--cert-dir={home}/kubelet/pki",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            "--cloud-provider=external",
        )

    def start_proxy(self) -> None:
        """Starts kube-proxy. It needs the addresses of its node, which the manager writes."""
        config = self.folder / "kube-proxy.yaml"
        config.write_text(files.proxy_config(self.cluster.admin))
        self._start("kube-proxy", "kube-proxy", f"--config={config}", "--hostname-override=node-1")

    def stop_kubelet(self, node: Node) -> None:
        self.end(f"kubelet-{node.number}", at_once=True)

    def stop_node(self, node: Node) -> None:
        """Switches the machine off: all its processes, also those of pods, and its mounts end."""
        del self._machines[node]
        for name in ("machine", "kubelet", "containerd"):
            self.end(f"{name}-{node.number}", at_once=True)

    def mounts(self, node: Node) -> list[str]:
        """Returns the lines of /proc/mounts of a node; empty if it is switched off."""
        pid = self._machines.get(node)
        return Path(f"/proc/{pid}/mounts").read_text().splitlines() if pid else []

    def cloud(self, *arguments: str) -> str:
        """Runs `pileus local` as the operator of the cloud and returns what it prints."""
        done = subprocess.run(
            [*self._in_image(), "pileus", "local", *arguments, f"--endpoint={files.ENDPOINT}"],
            capture_output=True,
            text=True,
            env=files.IMAGE_ENVIRONMENT,
            check=False,
        )
        if done.returncode:
            raise Failed(f"pileus local {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def instances(self) -> dict[str, str]:
        """Returns the provider IDs of the cloud's instances by name."""
        listed = json.loads(self.cloud("instances", "list", "-o", "json"))
        return {each["name"]: f"local://{each['id']}" for each in listed}

    def zone(self, node: Node) -> str:
        """Returns the zone of a node's instance."""
        listed = json.loads(self.cloud("instances", "list", "-o", "json"))
        return next(each["zone"] for each in listed if each["name"] == node.name)

    def until(self, probe: Callable[[], T], what: str, limit: float = LIMIT) -> T:
        """Returns the first true answer. Raises Failed if there is none in time."""
        deadline = time.monotonic() + limit
        while True:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise Failed(f"{name} ended:\n{self._tail(name)}")
            if found := probe():
                return found
            if time.monotonic() > deadline:
                raise Failed(f"not within {limit:.0f} s: {what}")
            threading.Event().wait(POLL)

    def end(self, name: str, *, at_once: bool = False) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        (process.kill if at_once else process.terminate)()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _isolate(self) -> None:
        """Makes the namespaces habitable: interfaces, and folders that a node writes to."""
        LOGS.mkdir(parents=True, exist_ok=True)
        self.audit_log.unlink(missing_ok=True)
        for script in (
            files.network_script(each.address for each in (*NODES, SPARE)),
            files.mount_script(self.folder),
        ):
            done = subprocess.run(
                ["bash", "-euc", script], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise Failed(f"the namespaces cannot be prepared: {done.stderr}")
        files.write_audit_policy(self.folder)
        create_cgroups(self.folder.name)

    def _start_managers(self) -> None:
        keys = self.folder / "control-plane"
        self._start(
            "kube-controller-manager",
            "kube-controller-manager",
            f"--kubeconfig={self.cluster.admin}",
            f"--service-account-private-key-file={keys}/accounts.key",
            f"--root-ca-file={keys}/ca.crt",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--node-monitor-period=2s",
            "--node-monitor-grace-period=25s",
        )
        self._start(
            "kube-scheduler",
            "kube-scheduler",
            f"--kubeconfig={self.cluster.admin}",
            "--leader-elect=false",
        )

    def _switch_on(self, node: Node, home: Path) -> None:
        """Starts the first process of a node, in namespaces of its own."""
        pid_file = home / "pid"
        namespaces = ["--mount", "--pid", "--fork", "--kill-child"]
        script = files.machine_script(home, pid_file)
        command = ["unshare", *namespaces, "bash", "-euc", script]
        self._spawn(f"machine-{node.number}", command, self._environment())
        self.until(pid_file.exists, f"{node.name} is switched on")
        self._machines[node] = pid_file.read_text().strip()

    def _start_cloud(self) -> None:
        """Starts the local cloud from the files of the image, and creates the machines.

        It runs as root, which loop devices need; its socket belongs to the user of the image.
        """
        files.write_cloud_files()
        for name in ("run", "dev", "proc", "sys"):
            (self.prepared.cloud / name).mkdir(exist_ok=True)
            subprocess.run(["mount", "--rbind", f"/{name}", self.prepared.cloud / name], check=True)
        serve = ["pileus", "local", "serve", f"--config={files.CLOUD_CONFIG}"]
        in_image = ["chroot", str(self.prepared.cloud)]
        self._spawn("local-cloud", [*in_image, *serve], files.IMAGE_ENVIRONMENT)
        self.until(Path(files.ENDPOINT).exists, "the local cloud serves")
        os.chown(files.ENDPOINT, USER, USER)
        self.cloud("instances", "create", *(node.name for node in NODES))
        zone = self.zone(NODES[0])
        self.cloud("instances", "create", SPARE.name, f"--zone={zone}")
        self.cloud("quota", "set", "balancers=1000")

    def _in_image(self) -> list[str]:
        return ["chroot", f"--userspec={USER}:{USER}", str(self.prepared.cloud)]

    def _ctr(self, node: Node, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["ctr", "--address", node.socket, "--namespace", "k8s.io", *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def _start(self, name: str, program: str, *arguments: str) -> None:
        self._spawn(name, [self._program(program), *arguments], self._environment())

    def _start_on(self, node: Node, name: str, program: str, *arguments: str) -> None:
        enter = ["nsenter", f"--target={self._machines[node]}", "--mount", "--pid", "--"]
        command = [*enter, *leash(), self._program(program), *arguments]
        self._spawn(name, command, self._environment())

    def _program(self, name: str) -> str:
        own = self.prepared.node / name
        return str(own) if own.exists() else name

    def _spawn(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with (LOGS / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*leash(), *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        root = self.prepared.debian
        programs = [f"{root}/usr/bin", f"{root}/usr/sbin", f"{root}/bin", os.environ["PATH"]]
        libraries = [f"{root}/usr/lib/x86_64-linux-gnu", f"{root}/lib/x86_64-linux-gnu"]
        return {
            "PATH": ":".join(programs),
            "LD_LIBRARY_PATH": ":".join(libraries),
            "HOME": str(self.folder),
        }

    def _tail(self, name: str) -> str:
        return "\n".join((LOGS / f"{name}.log").read_text(errors="replace").splitlines()[-15:])
