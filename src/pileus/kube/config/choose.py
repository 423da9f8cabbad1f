"""Which of the sources wins: `--kubeconfig`, `--master`, the pod's own access, the environment."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from msgspec import structs

from pileus.clock import Clock, SystemClock
from pileus.dataclass import dataclass
from pileus.kube.access import Access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.from_kubeconfig import (
    Place,
    bare_access,
    config_access,
    kubeconfig_access,
)
from pileus.kube.config.in_cluster import SERVICE_ACCOUNT, NotInCluster, in_cluster
from pileus.kube.config.kubeconfig import Kubeconfig, UserFiles, read_files, user_files
from pileus.kube.errors import CredentialsError
from pileus.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class AccessContext:
    """What the choice depends on besides flags and environment; tests replace it."""

    clock: Clock = field(default_factory=SystemClock)
    service_account: Path = SERVICE_ACCOUNT


HERE = AccessContext()
_WAYS = "give --kubeconfig=FILE, set KUBECONFIG, or create ~/.kube/config"


def load_access(
    kubeconfig: str, master: str, environ: Mapping[str, str], here: AccessContext = HERE
) -> Access:
    """Return the access that `--kubeconfig` and `--master` mean ("" where not given).

    `--master` takes the place of the server that the file names. With neither, it is the pod's
    own access, or else `KUBERNETES_MASTER` without credentials. `KUBECONFIG` is not read.

    Errors: `InvalidConfiguration`, naming the file and what to do.
    """
    if kubeconfig:
        return _from_file("--kubeconfig", kubeconfig, master, environ, here)
    if master:
        return _bare("--master", master, environ, here)
    found = in_cluster(environ, here.clock, here.service_account)
    if isinstance(found, Access):
        return found
    if server := environ.get("KUBERNETES_MASTER"):
        return _bare("KUBERNETES_MASTER", server, environ, here)
    raise InvalidConfiguration(
        "invalid configuration: no API server is configured. Give --kubeconfig=FILE or "
        f"--master=URL, or run in a pod ({found.why}), or set KUBERNETES_MASTER"
    )


def load_user_access(
    kubeconfig: str,
    master: str,
    context: str,
    environ: Mapping[str, str],
    here: AccessContext = HERE,
) -> Access:
    """Returns the access that kubectl would use, for commands that a user runs.

    The first of these counts: `--kubeconfig`, `$KUBECONFIG` (several files are merged),
    `~/.kube/config`, the pod's own access. `--master` without `--kubeconfig` connects without
    credentials, as the manager does. `context` ("" for none) replaces the current context.

    Raises InvalidConfiguration, naming the file and what to do.
    """
    files = user_files(kubeconfig, environ)
    if files is None or (master and not kubeconfig):
        if context:
            raise InvalidConfiguration(f"--context={context}: there is no kubeconfig; {_WAYS}")
        return _without_files(master, environ, here)
    try:
        merged = read_files(files)
        config = _in_context(merged.config, context)
        home = merged.home_of_user.get(_user_of(config), files.paths[0])
        return config_access(config, home, master, Place(home.parent, environ, here.clock))
    except (InvalidConfiguration, CredentialsError) as e:
        raise InvalidConfiguration(f"invalid configuration: {_shown(files, e)}") from e


def _without_files(master: str, environ: Mapping[str, str], here: AccessContext) -> Access:
    if master or isinstance(in_cluster(environ, here.clock, here.service_account), Access):
        return load_access("", master, environ, here)
    if environ.get("KUBERNETES_MASTER"):
        return load_access("", master, environ, here)
    raise InvalidConfiguration(f"invalid configuration: no cluster is configured; {_WAYS}")


def _in_context(config: Kubeconfig, context: str) -> Kubeconfig:
    if not context:
        return config
    known = [each.name for each in config.contexts or ()]
    if context not in known:
        hint = did_you_mean(context, known) or f"; its contexts: {', '.join(known) or 'none'}"
        raise InvalidConfiguration(f'--context: there is no context "{context}"{hint}')
    return structs.replace(config, current_context=context)


def _user_of(config: Kubeconfig) -> str:
    users = {
        each.name: (each.context and each.context.user) or "" for each in config.contexts or ()
    }
    return users.get(config.current_context or "", "")


def _shown(files: UserFiles, error: Exception) -> str:
    """The error with the files, unless it names one already."""
    text = str(error)
    if any(text.startswith(f"{path}: ") for path in files.paths):
        return f"{files.named_by}={text}" if len(files.paths) == 1 else f"{files.named_by}: {text}"
    return f"{files}: {text}"


def load_delegated_access(
    flag: str, kubeconfig: str, environ: Mapping[str, str], here: AccessContext = HERE
) -> Access | None:
    """Return the access for token and access reviews; None if there is none to be had.

    `flag` is `--authentication-kubeconfig` or `--authorization-kubeconfig`, `kubeconfig` its
    value. Without it, it is the pod's own access; outside a pod there is none.

    Errors: `InvalidConfiguration` if a file is given, but is of no use.
    """
    if kubeconfig:
        return _from_file(flag, kubeconfig, "", environ, here)
    found = in_cluster(environ, here.clock, here.service_account)
    return None if isinstance(found, NotInCluster) else found


def _from_file(
    flag: str, kubeconfig: str, master: str, environ: Mapping[str, str], here: AccessContext
) -> Access:
    path = Path(kubeconfig).absolute()
    try:
        return kubeconfig_access(path, master, Place(path.parent, environ, here.clock))
    except (InvalidConfiguration, CredentialsError) as e:
        raise InvalidConfiguration(f"invalid configuration: {flag}={path}: {e}") from e


def _bare(name: str, server: str, environ: Mapping[str, str], here: AccessContext) -> Access:
    try:
        return bare_access(server, Place(Path(), environ, here.clock))
    except InvalidConfiguration as e:
        raise InvalidConfiguration(f"invalid configuration: {name}: {e}") from e
