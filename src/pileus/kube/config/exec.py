"""Credentials that a command prints: the `exec` plugins of a kubeconfig (v1 and v1beta1)."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec

from pileus.clock import Clock
from pileus.kube.config.authorization import bearer
from pileus.kube.config.command import Command, Finished, Missing, run
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.kubeconfig import Exec
from pileus.kube.config.masking import mask, secret_args, secrets_in
from pileus.kube.config.renewal import Issued, Renewing
from pileus.kube.config.tls import check_pair
from pileus.kube.decoding import Malformed, decode
from pileus.kube.errors import CredentialsError
from pileus.pki import KeyPair

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
    """Check an `exec` block. `cluster` is told to the plugin if `provideClusterInfo` is set.

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
    _check_path(config.command, shown)
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
    told = {"kind": "ExecCredential", "apiVersion": config.api_version, "spec": spec}
    try:
        return msgspec.json.encode(told).decode()
    except (RecursionError, OverflowError, TypeError) as e:
        raise InvalidConfiguration(
            f"exec: provideClusterInfo: the cluster's extension {GROUP}/exec is not JSON: {e}"
        ) from None


def _check_path(command: str, environ: Mapping[str, str]) -> None:
    path = environ.get("PATH")
    if path and os.sep not in command and "" in path.split(os.pathsep):
        raise InvalidConfiguration(
            f"exec: PATH={path!r} has an empty entry, which means the current folder; "
            "remove the extra colon, or give the command's whole path"
        )


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
