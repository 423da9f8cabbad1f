"""A real Kubernetes control plane on loopback, for tests: etcd and kube-apiserver as processes.

    with ControlPlane(binaries, folder) as cluster:
        kubeconfig = cluster.user("someone", groups=("system:masters",))

Blocking on purpose: it is a fixture's business, outside of any event loop.
"""

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from pileus.clock import SystemClock
from pileus.dataclass import dataclass
from pileus.pki import Authority, Subject, signing_key

START_LIMIT = 120.0
STOP_LIMIT = 20.0
POLL = 0.05
LOOPBACK = "127.0.0.1"
ISSUER = "https://kubernetes.default.svc"
LONGEST_COMMON_NAME = 64
"""Of a certificate, by X.509."""


class NotStarted(Exception):
    """A part of the control plane did not come up; the message ends with its last log lines."""


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    etcd_peer: int
    api: int


class ControlPlane:
    """Etcd and one kube-apiserver with RBAC, keeping all they write in one folder."""

    def __init__(
        self,
        binaries: Path,
        folder: Path,
        *,
        arguments: Sequence[str] = (),
        with_service_accounts: bool = False,
    ) -> None:
        """`arguments` are added to those of kube-apiserver.

        `with_service_accounts` needs a kube-controller-manager, which creates them: a pod without
        its account is refused.
        """
        self.binaries = binaries
        self.folder = folder
        self._arguments = tuple(arguments)
        if not with_service_accounts:
            self._arguments += ("--disable-admission-plugins=ServiceAccount",)
        self._ports = Ports(*free_ports(3))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._now: datetime = SystemClock().now()
        self._authority = Authority("test-ca", now=self._now)
        self.server = f"https://{LOOPBACK}:{self._ports.api}"
        self.authority_file = folder / "ca.crt"
        self.admin = folder / "admin.kubeconfig"

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.start_etcd()
            self.start_api_server()
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

    def pids(self) -> tuple[int, ...]:
        """Its processes, for who wants to know what they cost."""
        return tuple(process.pid for process in self._processes.values())

    def user(self, name: str, *, groups: tuple[str, ...] = ()) -> Path:
        """Return a new kubeconfig whose bearer has that name and those groups.

        They are those of its client certificate; a name that is too long for a certificate is
        impersonated.
        """
        subject, acts_as = Subject(common_name=name, organizations=groups), dict[str, object]()
        if len(name) > LONGEST_COMMON_NAME:
            subject = Subject(common_name="impersonator", organizations=("system:masters",))
            acts_as = {"as": name, "as-groups": list(groups)}
        pair = self._authority.issue(subject, now=self._now)
        return self._write_kubeconfig(
            self.folder / f"{name.replace(':', '-')}.kubeconfig",
            {
                "client-certificate-data": _base64(pair.certificate),
                "client-key-data": _base64(pair.key),
                **acts_as,
            },
        )

    def token_user(self, name: str, token: str) -> Path:
        """Return a new kubeconfig that shows a bearer token."""
        return self._write_kubeconfig(self.folder / f"{name}.kubeconfig", {"token": token})

    def kubectl(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None) -> str:
        """Run kubectl as admin (or as someone else) and return what it prints; fails loudly."""
        done = subprocess.run(  # noqa: S603 -- our own binary
            [self.binaries / "kubectl", f"--kubeconfig={kubeconfig or self.admin}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self.folder), "PATH": os.environ.get("PATH", "")},
        )
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def start_etcd(self) -> None:
        client = f"http://{LOOPBACK}:{self._ports.etcd}"
        peer = f"http://{LOOPBACK}:{self._ports.etcd_peer}"
        self._start(
            "etcd",
            "--name=test",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=test={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )
        self._wait("etcd", f"{client}/health", None)

    def start_api_server(self) -> None:
        self._start(
            "kube-apiserver",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self._ports.api}",
            f"--etcd-servers=http://{LOOPBACK}:{self._ports.etcd}",
            f"--client-ca-file={self.authority_file}",
            f"--requestheader-client-ca-file={self.authority_file}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--tls-cert-file={self.folder}/server.crt",
            f"--tls-private-key-file={self.folder}/server.key",
            f"--service-account-key-file={self.folder}/accounts.pub",
            f"--service-account-signing-key-file={self.folder}/accounts.key",
            f"--service-account-issuer={ISSUER}",
            f"--api-audiences={ISSUER}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",  # as kubeadm sets it: node plugins are privileged
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",  # a loopback address may not be an Endpoint
            "--profiling=false",
            *self._arguments,
        )
        trust = ssl.create_default_context(cafile=str(self.authority_file))
        trust.load_cert_chain(self.folder / "admin.pem")
        self._wait("kube-apiserver", f"{self.server}/readyz", trust)

    def end(self, name: str, *, at_once: bool = False) -> None:
        """End one of our processes: politely, or as a crash would."""
        process = self._processes.pop(name, None)
        if process is None:
            return
        if at_once:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        names = ("localhost", "kubernetes", "kubernetes.default", LOOPBACK, "10.0.0.1")
        server = self._authority.issue(
            Subject(common_name="kube-apiserver", names=names), now=self._now
        )
        admin = self._authority.issue(
            Subject(common_name="admin", organizations=("system:masters",)), now=self._now
        )
        private, public = signing_key()
        files = {
            "ca.crt": self._authority.certificate,
            "server.crt": server.certificate,
            "server.key": server.key,
            "admin.pem": admin.certificate + admin.key,
            "accounts.key": private,
            "accounts.pub": public,
        }
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        self.user("admin", groups=("system:masters",))

    def _write_kubeconfig(self, path: Path, user: Mapping[str, object]) -> Path:
        authority = _base64(self._authority.certificate)
        cluster = {"server": self.server, "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def _start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 -- our own binary
                [*leash(), self.binaries / name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def _wait(self, name: str, url: str, trust: ssl.SSLContext | None) -> None:
        pause, waited = threading.Event(), 0.0
        while waited < START_LIMIT:
            if self._processes[name].poll() is not None:
                break
            if _answers(url, trust):
                return
            pause.wait(POLL)
            waited += POLL
        last = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
        raise NotStarted("\n".join([f"{name} did not come up at {url}:", *last]))


def leash() -> tuple[str, ...]:
    """What a command begins with that shall not outlive us, even if we are killed; Linux only."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def free_ports(count: int) -> list[int]:
    """Returns free ports of 127.0.0.1."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _answers(url: str, trust: ssl.SSLContext | None) -> bool:
    try:
        with urllib.request.urlopen(url, context=trust, timeout=2) as answer:  # noqa: S310
            return answer.status == 200  # noqa: PLR2004 -- OK
    except (OSError, urllib.error.URLError):
        return False


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
