"""A kubeconfig file as frozen values: what it says, and which of it the current context means."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from pileus.kube.config.document import parse
from pileus.kube.config.errors import InvalidConfiguration, reason
from pileus.suggest import did_you_mean


class _Part(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """A part of the file. Every field may be missing or null; unknown ones are skipped."""

    def __repr__(self) -> str:  # the fields may be secrets
        return f"<{type(self).__name__}>"


class Extension(_Part, frozen=True):
    name: str | None = None
    extension: object = None


class Cluster(_Part, frozen=True):
    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: tuple[Extension, ...] | None = None


class EnvironmentVariable(_Part, frozen=True):
    name: str | None = None
    value: str | None = None


class Exec(_Part, frozen=True, rename="camel"):
    """A command that prints credentials."""

    api_version: str | None = None
    command: str | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvironmentVariable, ...] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class AuthProvider(_Part, frozen=True):
    name: str | None = None


class User(_Part, frozen=True):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    impersonate: str | None = msgspec.field(name="as", default=None)
    impersonate_uid: str | None = msgspec.field(name="as-uid", default=None)
    impersonate_groups: tuple[str, ...] | None = msgspec.field(name="as-groups", default=None)
    impersonate_extra: dict[str, tuple[str, ...]] | None = msgspec.field(
        name="as-user-extra", default=None
    )
    exec: Exec | None = None
    auth_provider: AuthProvider | None = None


class Context(_Part, frozen=True):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class NamedCluster(_Part, frozen=True):
    name: str = ""
    cluster: Cluster | None = None


class NamedUser(_Part, frozen=True):
    name: str = ""
    user: User | None = None


class NamedContext(_Part, frozen=True):
    name: str = ""
    context: Context | None = None


class Kubeconfig(_Part, frozen=True):
    api_version: str | None = msgspec.field(name="apiVersion", default=None)
    kind: str | None = None
    current_context: str | None = None
    clusters: tuple[NamedCluster, ...] | None = None
    users: tuple[NamedUser, ...] | None = None
    contexts: tuple[NamedContext, ...] | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """What the current context of a kubeconfig means."""

    cluster: Cluster
    user: User
    namespace: str


NOTHING = Selection(Cluster(), User(), "default")

T = TypeVar("T")


def read_kubeconfig(path: Path) -> Kubeconfig:
    """Return what the file says. Errors: `InvalidConfiguration` with line and column, or field."""
    try:
        text = path.read_bytes()
    except OSError as e:
        raise InvalidConfiguration(f"cannot read it: {reason(e)}") from None
    document = parse(text, "it")
    try:
        config = msgspec.convert(document if document is not None else {}, Kubeconfig)
    except msgspec.ValidationError as e:
        raise InvalidConfiguration(f"it is no kubeconfig: {e}") from None
    if (config.kind or "Config") != "Config" or (config.api_version or "v1") != "v1":
        kind = f"{config.api_version or ''} {config.kind or ''}".strip()
        raise InvalidConfiguration(f"it is no kubeconfig but {kind!r}; expected v1 Config")
    return config


def select(config: Kubeconfig) -> Selection | None:
    """Return what the current context means; None if there is no current context."""
    if not config.current_context:
        return None
    contexts = _by_name("contexts", ((c.name, c.context) for c in config.contexts or ()))
    clusters = _by_name("clusters", ((c.name, c.cluster) for c in config.clusters or ()))
    users = _by_name("users", ((u.name, u.user) for u in config.users or ()))
    who = f"current-context {config.current_context!r}"
    context = _find(contexts, config.current_context, f"{who} is not among its contexts")
    if context is None:
        raise InvalidConfiguration(f"{who} is empty; it needs a cluster and a user")
    cluster, user = context.cluster or "", context.user or ""
    said = "names the {} {!r}, which is not in the file"
    selected = Selection(
        _find(clusters, cluster, f"{who} {said.format('cluster', cluster)}") or Cluster(),
        (_find(users, user, f"{who} {said.format('user', user)}") if user else None) or User(),
        context.namespace or "default",
    )
    _refuse_nul("cluster", selected.cluster)
    _refuse_nul("user", selected.user)
    return selected


def _refuse_nul(name: str, value: object) -> None:
    """Raise if a text holds a NUL byte: no file name, header or argument may have one."""
    if isinstance(value, str) and "\0" in value:
        raise InvalidConfiguration(f"{name} holds a NUL byte; remove it")
    for inner_name, inner in _inside(value):
        _refuse_nul(f"{name}{inner_name}", inner)


def _inside(value: object) -> Iterator[tuple[str, object]]:
    """The fields, entries or keys and values of a part of the file, with their names."""
    match value:
        case _Part():
            for field in msgspec.structs.fields(value):
                yield f".{field.encode_name}", getattr(value, field.name)
        case tuple():
            for index, inner in enumerate(cast("tuple[object, ...]", value)):
                yield f"[{index}]", inner
        case dict():
            for key, inner in cast("dict[str, object]", value).items():
                yield "", key
                yield f".{key}", inner
        case _:
            return


def _by_name(what: str, named: Iterable[tuple[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, part in named:
        if name in found:
            raise InvalidConfiguration(f"{what}: the name {name!r} occurs twice")
        found[name] = part
    return found


def _find(parts: dict[str, T], name: str, complaint: str) -> T:
    if name in parts:
        return parts[name]
    hint = did_you_mean(name, parts) or f"; it has: {', '.join(parts) or 'none'}"
    raise InvalidConfiguration(f"{complaint}{hint}")
