"""A kubeconfig file as frozen values: what it says, and which of it the current context means."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from pileus.dataclass import dataclass
from pileus.kube.config.errors import InvalidConfiguration, reason
from pileus.kube.decoding import DEEPEST, Malformed, decode
from pileus.suggest import did_you_mean

if TYPE_CHECKING:
    import yaml
import os
from collections.abc import Mapping, Sequence

from msgspec import structs


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
        raise InvalidConfiguration(f"not a kubeconfig: {e}") from None
    if (config.kind or "Config") != "Config" or (config.api_version or "v1") != "v1":
        kind = f"{config.api_version or ''} {config.kind or ''}".strip()
        raise InvalidConfiguration(f"not a kubeconfig but {kind!r}; expected v1 Config")
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


_ANYTHING: msgspec.json.Decoder[object] = msgspec.json.Decoder(object)
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_QUOTED = re.compile(r"""'(?!<)[^']{2,}'|"[^"]{2,}\"""")


def parse(text: bytes, where: str) -> object:
    """Return what the text says. Errors quote nothing of it: it may hold secrets."""
    if text.lstrip().startswith(b"{"):
        try:
            return decode(_ANYTHING, text)
        except Malformed:
            pass  # YAML's flow style begins like JSON, and its parser names line and column
    import yaml  # noqa: PLC0415 -- 15 ms that a pod needs not pay

    try:
        loader = _loader()
        _refuse_depth(text, where, loader)
        return yaml.load(text, loader)  # noqa: S506 -- a SafeLoader
    except yaml.MarkedYAMLError as e:
        raise InvalidConfiguration(f"{where} is not YAML: {_place(e)}{_problem(e)}") from None
    except (yaml.reader.ReaderError, UnicodeDecodeError):
        raise InvalidConfiguration(f"{where} is not UTF-8 text; save it as UTF-8") from None
    except (yaml.YAMLError, ValueError) as e:
        raise InvalidConfiguration(f"{where} is not YAML: {type(e).__name__}") from None


def _refuse_depth(text: bytes, where: str, loader: "type[yaml.SafeLoader]") -> None:
    """Refuse what is nested so deep that building it would overflow the stack of libyaml."""
    import yaml  # noqa: PLC0415 -- see above

    depth = 0
    parse = cast("Callable[..., Iterator[yaml.Event]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType] -- the stub does not say
    for event in parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise InvalidConfiguration(
                f"{where} is nested more than {DEEPEST} levels deep at line {line}; "
                "no kubeconfig needs that, so check how the file was made"
            )


def _loader() -> "type[yaml.SafeLoader]":
    """Return a loader for which a date is a string, as it is for kubectl."""
    import yaml  # noqa: PLC0415 -- see above

    base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _place(error: "yaml.MarkedYAMLError") -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _problem(error: "yaml.MarkedYAMLError") -> str:
    return _QUOTED.sub("***", error.problem or error.context or "malformed")


Named = TypeVar("Named", NamedCluster, NamedUser, NamedContext)


@dataclass(frozen=True, slots=True)
class UserFiles:
    """Kubeconfig files, and the flag or variable that named them."""

    named_by: str
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{self.named_by}={os.pathsep.join(map(str, self.paths))}"


@dataclass(frozen=True, slots=True)
class Merged:
    """Several kubeconfigs as one. Relative paths are absolute."""

    config: Kubeconfig
    home_of_user: Mapping[str, Path]
    """The file that defines each user."""


def user_files(kubeconfig: str, environ: Mapping[str, str]) -> UserFiles | None:
    """Returns the files of `--kubeconfig`, else of `KUBECONFIG`, else `~/.kube/config`.

    Returns None if none is named and there is no default file.
    """
    if kubeconfig:
        return UserFiles("--kubeconfig", (Path(kubeconfig).absolute(),))
    if listed := [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]:
        paths = dict.fromkeys(Path(part).absolute() for part in listed)
        return UserFiles("KUBECONFIG", tuple(paths))
    home = environ.get("HOME", "")
    default = Path(home, ".kube", "config")
    return UserFiles("kubeconfig", (default,)) if home and default.is_file() else None


def read_files(files: UserFiles) -> Merged:
    """Returns all files as one: of two values for the same thing, the first file's counts.

    Of several files in `KUBECONFIG`, those that do not exist are skipped. Raises
    InvalidConfiguration, naming the file, if one cannot be used or none exists.
    """
    present = [path for path in files.paths if path.exists()] if len(files.paths) > 1 else ()
    if len(files.paths) > 1 and not present:
        raise InvalidConfiguration("none of these files exists")
    read = [(path, _absolute(_read(path), path.parent)) for path in present or files.paths]
    configs = [config for _, config in read]
    homes = {user.name: path for path, config in reversed(read) for user in config.users or ()}
    return Merged(_merged(configs), homes) if len(configs) > 1 else Merged(configs[0], homes)


def _read(path: Path) -> Kubeconfig:
    try:
        return read_kubeconfig(path)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"{path}: {error}") from error


def _merged(configs: Sequence[Kubeconfig]) -> Kubeconfig:
    return Kubeconfig(
        current_context=next(
            (each.current_context for each in configs if each.current_context), ""
        ),
        clusters=_firsts(each for config in configs for each in config.clusters or ()),
        users=_firsts(each for config in configs for each in config.users or ()),
        contexts=_firsts(each for config in configs for each in config.contexts or ()),
    )


def _firsts(named: Iterable[Named]) -> tuple[Named, ...]:
    found: dict[str, Named] = {}
    for each in named:
        found.setdefault(each.name, each)
    return tuple(found.values())


def _absolute(config: Kubeconfig, folder: Path) -> Kubeconfig:
    clusters = (
        structs.replace(each, cluster=each.cluster and _cluster(each.cluster, folder))
        for each in config.clusters or ()
    )
    users = (
        structs.replace(each, user=each.user and _user(each.user, folder))
        for each in config.users or ()
    )
    return structs.replace(config, clusters=tuple(clusters), users=tuple(users))


def _cluster(cluster: Cluster, folder: Path) -> Cluster:
    authority = _path(cluster.certificate_authority, folder)
    return structs.replace(cluster, certificate_authority=authority)


def _user(user: User, folder: Path) -> User:
    return structs.replace(
        user,
        client_certificate=_path(user.client_certificate, folder),
        client_key=_path(user.client_key, folder),
        token_file=_path(user.token_file, folder),
        exec=user.exec and _exec(user.exec, folder),
    )


def _exec(plugin: Exec, folder: Path) -> Exec:
    """A command without a slash is looked up on the PATH."""
    command = plugin.command or ""
    return structs.replace(plugin, command=_path(command, folder) if os.sep in command else command)


def _path(given: str | None, folder: Path) -> str | None:
    return str(folder / given) if given else given
