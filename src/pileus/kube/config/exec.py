"""Credentials from `exec` plugins: checked, run with limits, with secrets masked in messages."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import IO

import msgspec

from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.key_pair import KeyPair
from pileus.kube.config.credentials import Issued, Renewing, bearer
from pileus.kube.config.errors import InvalidConfiguration, reason
from pileus.kube.config.kubeconfig import Exec
from pileus.kube.config.tls import check_pair
from pileus.kube.decoding import Malformed, decode
from pileus.kube.errors import CredentialsError

MASK = "***"

_SHORTEST = 4
"""Shorter values ("1", "yes") are no secrets, and masking them would garble any text."""

_SHAPES = (
    re.compile(r"eyJ[\w-]{6,}(?:\.[\w-]*)*"),  # JSON web tokens
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL),
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),  # user:password in a URL
    re.compile(r"(?i)(?<=basic )[a-z0-9+/=]{8,}"),
    re.compile(r"\bk8s-aws-v1\.[\w=-]+"),  # EKS
    re.compile(r"\b(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{12,}\b"),  # access keys of AWS
    re.compile(r"\b(?:gh[opsur]|github_pat|glpat|xox[abeprs])[-_][\w-]{10,}"),
    re.compile(r"\bya29\.[\w.-]+"),  # Google
    re.compile(r"(?<![\w/+=.-])(?=\S*[a-z])(?=\S*[A-Z])(?=\S*\d)[\w/+]{40}(?![\w/+=-]|\.\w)"),
    re.compile(r"(?<![\w./-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{48,}={0,2}"),
)
"""The last two: secret keys of AWS, and what is too long and too mixed for a word."""
_BEARER = re.compile(r"""(?i)(\bbearer(?:\s+|\s*[:=]\s*)["']?)[^\s"',;]+""")
_NAMED = re.compile(
    r"""(?ix)
    ( [\w-]* (?: token|passw(?:or)?d|passphrase|pwd|secret|credential|signature|assertion
             | (?:api|access|account|private|shared|auth)[_-]?key ) [\w-]* \\?["']? \s* [:=] \s* )
    ( "[^"]*" | '[^']*' | [^\s,;&]+ )
    """
)
_TELLING = re.compile(r"(?i)token|passw|secret|key|credential")


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without the secrets given, and without whatever looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    for shape in _SHAPES:
        text = shape.sub(MASK, text)
    return _NAMED.sub(rf"\1{MASK}", _BEARER.sub(rf"\1{MASK}", text))


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the values of environment variables with a secret name."""
    return tuple(value for name, value in environ.items() if _TELLING.search(name))


def secret_args(args: Sequence[str]) -> tuple[str, ...]:
    """Returns the values of options with a secret name: `--token=x`, or `--token x`."""
    joined = [(arg.partition("=")[0], arg.partition("=")[2]) for arg in args if "=" in arg]
    apart = [(name, value) for name, value in pairwise(args) if "=" not in name]
    return tuple(
        value for name, value in joined + apart if name.startswith("-") and _TELLING.search(name)
    )


OUTPUT_LIMIT = 2**20
ERROR_LIMIT = 2**12


@dataclass(frozen=True, slots=True)
class Command:
    path: str
    """Absolute, or a name to be found on the PATH of the environment."""
    args: tuple[str, ...] = field(default=(), repr=False)
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class Finished:
    status: int
    output: bytes = field(repr=False)
    errors: str = field(repr=False)
    """The end of what it wrote to its standard error."""


class Missing(CredentialsError):
    """There is no such command."""


async def run(command: Command, deadline: float) -> Finished:
    """Returns how it ended. Cancellation kills the command with all its child processes.

    Errors: `Missing`; `CredentialsError` if it cannot be started, says too much or takes too long.
    """
    # Not asyncio's own: cancelled while it starts, that kills the command but not its children,
    # and then waits for them.
    process = _start(command)
    try:
        async with asyncio.timeout(deadline):
            finished = await _finish(process)
    except TimeoutError:
        _kill(process)
        raise CredentialsError(f"{command.path}: no answer within {deadline:g} s") from None
    except asyncio.CancelledError:
        _kill(process)
        raise
    if len(finished.output) > OUTPUT_LIMIT:
        raise CredentialsError(f"{command.path}: printed more than {OUTPUT_LIMIT} bytes")
    return finished


def _start(command: Command) -> "subprocess.Popen[bytes]":
    found = shutil.which(command.path, path=command.environ.get("PATH", os.defpath))
    if found is None:
        where = "there is no such file" if os.sep in command.path else "it is not on the PATH"
        raise Missing(f"{command.path}: {where}, or it is not executable")
    if not os.path.isabs(found):
        raise CredentialsError(
            f"{command.path}: PATH leads to {found!r} in the current folder; remove the entry of "
            "PATH that is not absolute, or give the command's whole path"
        )
    try:
        return subprocess.Popen(  # noqa: S603 -- to run what the user's file names is the task
            [found, *command.args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=command.environ,
            start_new_session=True,
        )
    except OSError as e:
        raise CredentialsError(f"{command.path}: cannot be started: {reason(e)}") from None
    except ValueError as e:  # a text that no system call takes
        raise CredentialsError(f"{command.path!r}: cannot be started: {e}") from None


async def _finish(process: "subprocess.Popen[bytes]") -> Finished:
    async with asyncio.TaskGroup() as tasks:
        output = tasks.create_task(_head(process.stdout))
        errors = tasks.create_task(_tail(process.stderr))
        status = tasks.create_task(asyncio.to_thread(process.wait))
    text = errors.result().decode(errors="replace").strip()
    return Finished(status.result(), output.result(), text)


async def _head(pipe: IO[bytes] | None) -> bytes:
    """The first bytes, up to one more than the limit; the rest is read and forgotten."""
    head = b""
    async for chunk in _chunks(pipe):
        head = (head + chunk)[: OUTPUT_LIMIT + 1]
    return head


async def _tail(pipe: IO[bytes] | None) -> bytes:
    tail = b""
    async for chunk in _chunks(pipe):
        tail = (tail + chunk)[-ERROR_LIMIT:]
    return tail


async def _chunks(pipe: IO[bytes] | None) -> AsyncIterator[bytes]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        while chunk := await reader.read(2**16):
            yield chunk
    finally:
        transport.close()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()  # returns at once: SIGKILL cannot be ignored
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


DEADLINE = 60.0
GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")
MODES = ("Never", "IfAvailable", "Always")

Run = Callable[[Command, float], Awaitable[Finished]]


@dataclass(frozen=True, slots=True)
class Plugin:
    """A command checked and ready to run."""

    command: Command
    api_version: str
    hint: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What must not be seen in messages."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a plugin gave."""

    token: str = field(default="", repr=False)
    pair: KeyPair | None = None
    expires: datetime | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None

    def __repr__(self) -> str:
        return "<_Status>"


class _Credential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    status: _Status | None = None


_CREDENTIAL = msgspec.json.Decoder(_Credential)


def plugin(
    config: Exec, folder: Path, environ: Mapping[str, str], cluster: Mapping[str, object]
) -> Plugin:
    """Check an `exec` block. `cluster` is passed to the plugin if `provideClusterInfo` is set.

    A command with a slash in it is relative to `folder`, where the kubeconfig lies.
    """
    if not config.command:
        raise InvalidConfiguration("exec needs a command")
    if config.api_version not in VERSIONS:
        raise InvalidConfiguration(
            f"exec: apiVersion {config.api_version!r} is not supported; use {VERSIONS[0]}"
        )
    _check_mode(config)
    path = str(folder / config.command) if os.sep in config.command else config.command
    env = _env(config)
    shown = {**environ, **env, "KUBERNETES_EXEC_INFO": _info(config, cluster)}
    return Plugin(
        Command(path, config.args or (), shown),
        config.api_version or "",
        (config.install_hint or "").strip(),
        (*env.values(), *secret_args(config.args or ()), *secrets_in(environ)),
    )


def _env(config: Exec) -> dict[str, str]:
    env = {variable.name or "": variable.value or "" for variable in config.env or ()}
    for name in env:
        if not name:
            raise InvalidConfiguration("exec: env has a variable without a name; give it one")
        if "=" in name:
            raise InvalidConfiguration(
                f"exec: env has a variable named {name!r}; put what follows = into its value"
            )
    return env


def _info(config: Exec, cluster: Mapping[str, object]) -> str:
    """The value of KUBERNETES_EXEC_INFO. `cluster` may hold any YAML, in an extension."""
    spec = {"interactive": False, **({"cluster": cluster} if config.provide_cluster_info else {})}
    info = {"kind": "ExecCredential", "apiVersion": config.api_version, "spec": spec}
    try:
        return msgspec.json.encode(info).decode()
    except (RecursionError, OverflowError, TypeError) as e:
        raise InvalidConfiguration(
            f"exec: provideClusterInfo: the cluster's extension {GROUP}/exec is not JSON: {e}"
        ) from None


def _check_mode(config: Exec) -> None:
    if not config.interactive_mode and config.api_version == VERSIONS[0]:
        raise InvalidConfiguration("exec: interactiveMode must be given; use IfAvailable or Never")
    mode = config.interactive_mode or "IfAvailable"
    if mode not in MODES:
        raise InvalidConfiguration(f"exec: interactiveMode {mode!r} is none of {', '.join(MODES)}")
    if mode == "Always":
        raise InvalidConfiguration(
            "exec: interactiveMode Always needs a terminal, which this program has not"
        )


class ExecAuthorization:
    """Run the plugin when there is nothing, when what there is has expired, and when rejected."""

    def __init__(self, plugin: Plugin, clock: Clock, start: Run = run) -> None:
        self._plugin = plugin
        self._clock = clock
        self._start = start
        self._printed = Renewing(self._fetch, clock)

    async def header(self) -> str | None:
        printed = await self._printed.value()
        return bearer(printed.token, _origin(self._plugin)) if printed.token else None

    def issued(self) -> KeyPair | None:
        printed = self._printed.last
        return printed.pair if printed else None

    def rejected(self) -> None:
        self._printed.reject()

    async def _fetch(self) -> Issued[Printed]:
        try:
            finished = await self._start(self._plugin.command, DEADLINE)
        except Missing as e:
            hint = f"\n{self._plugin.hint}" if self._plugin.hint else ""
            raise CredentialsError(f"exec plugin {e}{hint}") from None
        except CredentialsError as e:
            raise CredentialsError(f"exec plugin {e}") from None
        printed = parse_output(self._plugin, finished)
        now = self._clock.now()
        if printed.expires and printed.expires <= now:
            raise CredentialsError(
                f"{_origin(self._plugin)}: its credentials expired at "
                f"{printed.expires.isoformat()}, and it is {now.isoformat(timespec='seconds')}; "
                "log in again where it gets them from, or set the clock"
            )
        return Issued(printed, now, printed.expires, printed.expires)


def _origin(plugin: Plugin) -> str:
    return f"exec plugin {plugin.command.path}"


def parse_output(plugin: Plugin, finished: Finished) -> Printed:
    """Return what the plugin printed. Errors: `CredentialsError`, quoting nothing but stderr."""
    origin = _origin(plugin)
    said = mask(finished.errors, plugin.secrets)
    also = f"; it says: {said}" if said else ""
    if finished.status != 0:
        how = f"exit code {finished.status}" if finished.status > 0 else "killed by a signal"
        raise CredentialsError(f"{origin}: {how}{also}")
    try:
        credential = decode(_CREDENTIAL, finished.output)
    except Malformed as e:
        size = len(finished.output)
        raise CredentialsError(
            f"{origin}: the {size} bytes that it printed are no ExecCredential: {e}{also}"
        ) from None
    if credential.kind != "ExecCredential" or credential.api_version != plugin.api_version:
        raise CredentialsError(
            f"{origin}: expected an ExecCredential of {plugin.api_version}; make its apiVersion "
            f"and that of the kubeconfig's exec block agree{also}"
        )
    return _printed(origin, credential.status or _Status(), also)


def _printed(origin: str, status: _Status, also: str) -> Printed:
    certificate, key = status.client_certificate_data or "", status.client_key_data or ""
    if bool(certificate) != bool(key):
        raise CredentialsError(f"{origin}: printed a certificate or a key without the other{also}")
    if not certificate and not status.token:
        raise CredentialsError(f"{origin}: printed neither a token nor a certificate{also}")
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        raise CredentialsError(f"{origin}: its expirationTimestamp has no time zone{also}")
    pair = KeyPair(certificate.encode(), key.encode()) if certificate else None
    if pair:
        _check(pair, origin)
    return Printed(status.token or "", pair, expires)


def _check(pair: KeyPair, origin: str) -> None:
    try:
        check_pair(pair, "the certificate that it printed")
    except InvalidConfiguration as e:
        raise CredentialsError(f"{origin}: {e}") from None
