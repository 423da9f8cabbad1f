"""Reads the journal of the leader with the caller's own credentials.

    Lease ──▶ leader ──▶ its pod ──▶ proxy of the API server ──▶ /history/v1/entries
    --server URL ─────────────────────────────────────────────▶ /history/v1/entries

The proxy of the API server removes the header Authorization, so that the token is sent in a second
header as well. Cloud credentials are not needed.
"""

import re
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from pileus.app.clients import user_agent
from pileus.app.errors import CommandFailed, NoApiServer
from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.kube.access import Access, Credentials, Server
from pileus.kube.client import Client
from pileus.kube.config.credentials import bearer
from pileus.kube.errors import (
    ApiError,
    CredentialsError,
    Forbidden,
    KubeError,
    NotFound,
    Unauthorized,
    Unreachable,
    refusal,
)
from pileus.kube.http import HttpTransport
from pileus.kube.model.coordination_v1 import LEASES, Lease
from pileus.kube.transport import Request
from pileus.runtime.settings import LeaderElectionSettings
from pileus.server.authentication import THROUGH_PROXY
from pileus.server.history import ENTRIES
from pileus.server.settings import ServerSettings
from pileus.settings.config import Config
from pileus.telemetry.journal import History, Question
from pileus.telemetry.metrics import Metrics

TRIES = 8
"""Requests until one reaches the leader: replicas on one node share its port."""
MARKS = ("pileus", "cloud-controller-manager")
"""A container is taken for the manager's if its image, name or command contains one of these."""
RIGHTS = (
    "kubectl create clusterrole pileus-history --verb=get --non-resource-url='/history/v1/*' && "
    "kubectl create clusterrolebinding pileus-history --clusterrole=pileus-history {who}"
)
OWN_TOKEN_FIX = (
    "Fix: kubectl create token NAME --namespace=NAMESPACE > FILE, "  # noqa: S105 -- a hint
    "and give --token-file=FILE"
)
_FIND_FIX = (
    "Fix: ask for the right to read {what} in namespace {namespace}, or give "
    "--server=https://HOST:PORT of the leader"
)
PROXY_RIGHTS = (
    "ask for the right to get pods/proxy of {name} alone in namespace {namespace} "
    "(docs/guides/read-the-history.md), or reach the manager's port yourself "
    "(kubectl port-forward) and give --server=https://HOST:PORT"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How the leader is reached."""

    server: str = ""
    """The URL of the secure port; empty: through the API server."""
    ca_file: str = ""
    insecure: bool = False
    token_file: str = field(default="", repr=False)


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    image: str = ""
    command: list[str] = []
    args: list[str] = []


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    containers: list[_Container] = []


class _Phase(msgspec.Struct, frozen=True):
    phase: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod, as far as it matters here."""

    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()
    status: _Phase = _Phase()

    @property
    def words(self) -> Sequence[str]:
        return [
            word
            for each in self.spec.containers
            for word in (each.name, each.image, *each.command, *each.args)
        ]


class _Pods(msgspec.Struct, frozen=True):
    items: list[Pod] = []


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """Asks the leader for entries. Finds it again when it does not answer."""

    client: Client
    transport: HttpTransport
    access: Access
    reach: Reach
    config: Config
    clock: Clock

    async def read(self, question: Question) -> History:
        """Returns what the leader answers. Raises CommandFailed with what to do, or NoApiServer."""
        path = ENTRIES if self.reach.server else f"{await self._proxied()}{ENTRIES}"
        found: History | None = None
        for _ in range(TRIES):
            found = await self._ask(path, question)
            if found.leading:
                return found
        name = found.identity if found else ""
        raise CommandFailed(
            f"{name or 'the process that answers'} is not the leader. "
            "Fix: leave --server out, or give that of the leader"
            if self.reach.server
            else f"the pod of the leader is answered by another replica ({name}); try again"
        )

    async def _proxied(self) -> str:
        """Returns the path of the leader's port at the API server."""
        wanted = self.config[LeaderElectionSettings]
        namespace = wanted.resource_namespace
        host = await self._leader(namespace, wanted.resource_name)
        try:
            text = await self.client.raw("GET", f"/api/v1/namespaces/{namespace}/pods")
        except Forbidden as error:
            raise CommandFailed(
                f"cannot list pods of namespace {namespace} to find the leader {host}: {error}. "
                f"{_FIND_FIX.format(what='pods', namespace=namespace)}"
            ) from error
        except KubeError as error:
            raise CommandFailed(
                f"cannot list pods of namespace {namespace} to find the leader {host}: {error}"
            ) from error
        pods = msgspec.json.decode(text, type=_Pods).items
        pod = pod_of(host, pods)
        if pod is None:
            raise CommandFailed(
                f'the leader "{host}" is not a pod of namespace {namespace}: it runs in another '
                f"namespace or outside of the cluster. Fix: give --server=https://{host}:PORT with "
                "its --secure-port"
            )
        port = port_of(pod, self.config[ServerSettings].serving.port)
        return f"/api/v1/namespaces/{namespace}/pods/https:{pod.metadata.name}:{port}/proxy"

    async def _leader(self, namespace: str, name: str) -> str:
        """Returns the host of the leader. Raises CommandFailed if there is none, or NoApiServer."""
        check = f"Check: kubectl -n {namespace} get lease,pods"
        try:
            lease = await self.client.get(LEASES, name, namespace=namespace)
        except NotFound as error:
            raise CommandFailed(
                f"there is no leader: Lease {namespace}/{name} does not exist. {check}"
            ) from error
        except Forbidden as error:
            raise CommandFailed(
                f"cannot read Lease {namespace}/{name} to find the leader: {error}. "
                f"{_FIND_FIX.format(what='Leases', namespace=namespace)}"
            ) from error
        except Unreachable as error:
            raise NoApiServer(
                f"cannot read Lease {namespace}/{name} to find the leader: {error}",
                untrusted=error.untrusted,
            ) from error
        except KubeError as error:
            raise CommandFailed(
                f"cannot read Lease {namespace}/{name} to find the leader: {error}"
            ) from error
        holder = holder_of(lease, self.clock.now())
        if not holder:
            raise CommandFailed(
                f"there is no leader: Lease {namespace}/{name} is not held, or has expired. {check}"
            )
        return holder.rpartition("_")[0] or holder

    async def _ask(self, path: str, question: Question) -> History:
        asked = {k: str(v) for k, v in msgspec.to_builtins(question).items() if v}
        request = Request(
            method="GET", path=path, query=asked, headers=await self._headers(), timeout=30.0
        )
        try:
            async with self.transport.send(request) as reply:
                body = await reply.read()
        except CredentialsError as error:
            raise CommandFailed(str(error)) from error
        except KubeError as error:
            raise CommandFailed(f"cannot reach the leader{self._where(error)}") from error
        if reply.status != 200:  # noqa: PLR2004 -- HTTP's own number
            raise self._refused(refusal("GET", path, reply.status, headers={}, body=body))
        try:
            return msgspec.json.decode(body, type=History)
        except msgspec.DecodeError as error:
            raise CommandFailed(f"the answer at {path} is no history: {error}") from error

    def _where(self, error: KubeError) -> str:
        """Returns the reason, and where the leader was tried; with --server not the API server."""
        if not self.reach.server:
            return f": {error}"
        why = str(error).replace(f"API server {self.transport.host}: ", "", 1)
        return f" at --server={self.reach.server}: {why}"

    async def _headers(self) -> Mapping[str, str]:
        headers = {"Accept": "application/json", "User-Agent": user_agent("history")}
        if self.reach.server:
            return headers
        given = (await self.access.credentials.headers()).get("Authorization", "")
        if self.reach.token_file:
            given = _Token(self.reach.token_file).header()
        if not given.lower().startswith("bearer "):
            raise CommandFailed(
                "the history is read with your own bearer token, and your kubeconfig has none. "
                f"{OWN_TOKEN_FIX}"
            )
        return {**headers, THROUGH_PROXY: given}

    def _refused(self, error: ApiError) -> CommandFailed:
        namespace = self.config[LeaderElectionSettings].resource_namespace
        text = str(error)
        if isinstance(error, Forbidden) and "pods/proxy" in text:
            found = re.search(r"/pods/([^/]+)/proxy", text)
            name = found[1] if found else "https:POD:PORT"
            fix = PROXY_RIGHTS.format(name=name, namespace=namespace)
            return CommandFailed(f"{text}. Fix: {fix}")
        if isinstance(error, Forbidden) and '"system:anonymous"' in text:
            return CommandFailed(f"the manager got no token ({text}). {OWN_TOKEN_FIX}")
        if isinstance(error, Forbidden):
            rights = RIGHTS.format(who=_binding(text))
            return CommandFailed(f"{text}. Fix: ask an administrator to run: {rights}")
        if isinstance(error, Unauthorized):
            return CommandFailed(f"{text}. Fix: give a valid token with --token-file=FILE")
        if isinstance(error, NotFound):
            return CommandFailed(f"{text}. Is the manager older than this command?")
        return CommandFailed(f"the leader does not answer: {text}")


def _binding(text: str) -> str:
    """Returns the flag of kubectl that names the user in a refusal."""
    found = re.search(r'User "([^"]+)"', text)
    name = found[1] if found else "NAME"
    account = re.fullmatch(r"system:serviceaccount:([^:]+):([^:]+)", name)
    return f"--serviceaccount={account[1]}:{account[2]}" if account else f"--user={name}"


def holder_of(lease: Lease, now: datetime) -> str:
    """Returns the identity that holds the lease; empty if none does."""
    spec = lease.spec
    if spec is None or not spec.holder_identity or spec.renew_time is None:
        return ""
    age = (now - spec.renew_time).total_seconds()
    return "" if age > 2 * (spec.lease_duration_seconds or 15) else spec.holder_identity


def pod_of(host: str, pods: Sequence[Pod]) -> Pod | None:
    """Returns the running pod of the manager on a host.

    On the host network the name of the host is that of the node, perhaps with its domain;
    otherwise it is the name of the pod. On a node that has the pod of another manager as well, the
    one with "pileus" in its name or its container is meant.
    """
    running = [pod for pod in pods if pod.status.phase == "Running"]
    for pod in running:
        if pod.metadata.name == host:
            return pod
    ours = [pod for pod in running if any(m in word for word in pod.words for m in MARKS)]
    short = host.partition(".")[0]
    there = [pod for pod in ours if pod.spec.node_name.partition(".")[0] == short]
    surely = (
        pod for pod in there if any(MARKS[0] in word for word in (pod.metadata.name, *pod.words))
    )
    return next(surely, there[0] if there else None)


def port_of(pod: Pod, usual: int) -> int:
    """Returns the port of `--secure-port` in the pod's command, else the usual one."""
    given = [word.partition("=")[2] for word in pod.words if word.startswith("--secure-port=")]
    return int(given[-1]) if given and given[-1].isdecimal() else usual


@dataclass(frozen=True, slots=True)
class _Token:
    """The token in a file."""

    file: str

    def header(self) -> str:
        try:
            return bearer(Path(self.file).read_text().strip(), f"--token-file={self.file}")
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror if isinstance(error, OSError) else "") or str(error)
            raise CommandFailed(f"--token-file={self.file} cannot be read: {why}") from error
        except CredentialsError as error:
            raise CommandFailed(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Direct:
    """The caller's credentials, for another server than the API server."""

    inner: Credentials
    reach: Reach

    async def headers(self) -> Mapping[str, str]:
        if self.reach.token_file:
            return {"Authorization": _Token(self.reach.token_file).header()}
        return await self.inner.headers()

    def tls(self) -> ssl.SSLContext | None:
        if not self.reach.insecure and not self.reach.ca_file:
            return self.inner.tls()
        try:
            context = ssl.create_default_context(cafile=self.reach.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise CommandFailed(f"--server-ca={self.reach.ca_file}: {error}") from error
        if self.reach.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def rejected(self) -> None:
        self.inner.rejected()


@asynccontextmanager
async def history_reader(
    access: Access, reach: Reach, config: Config, clock: Clock, metrics: Metrics
) -> AsyncGenerator[HistoryReader]:
    """Reads history while the block lasts. Raises CommandFailed for a wrong `Reach`."""
    check_reach(reach)
    target = access
    if reach.server:
        target = replace(
            access,
            server=reach.server.rstrip("/"),
            credentials=_Direct(access.credentials, reach),
            proxy=None,
            server_name=None,
            trust=reach.ca_file or "the cluster's authority; see --server-ca",
        )
    async with HttpTransport(access) as api, HttpTransport(target) as transport:
        server = Server(api.host, access.refused)
        client = Client(api, user_agent=user_agent("history"), metrics=metrics, server=server)
        yield HistoryReader(client, transport, access, reach, config, clock)


def check_reach(reach: Reach) -> None:
    if (reach.ca_file or reach.insecure) and not reach.server:
        flag = "--server-ca" if reach.ca_file else "--insecure-skip-tls-verify"
        raise CommandFailed(f"{flag} needs --server")
    if reach.ca_file and reach.insecure:
        raise CommandFailed("--server-ca and --insecure-skip-tls-verify: remove one of them")
    if reach.server:
        try:
            parts = urlsplit(reach.server)
            is_usable = parts.scheme == "https" and bool(parts.hostname) and not parts.query
        except ValueError:
            is_usable = False
        if not is_usable:
            raise CommandFailed(
                f'--server="{reach.server}" is not a URL such as https://HOST:10258'
            )
