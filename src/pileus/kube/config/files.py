"""The kubeconfig files of a user, read as one the way kubectl reads them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.kubeconfig import (
    Cluster,
    Exec,
    Kubeconfig,
    NamedCluster,
    NamedContext,
    NamedUser,
    User,
    read_kubeconfig,
)

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
