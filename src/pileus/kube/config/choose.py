"""Which of the sources wins: `--kubeconfig`, `--master`, the pod's own access, the environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pileus.clock import Clock, SystemClock
from pileus.kube.access import Access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.from_kubeconfig import Place, bare_access, kubeconfig_access
from pileus.kube.config.in_cluster import SERVICE_ACCOUNT, NotInCluster, in_cluster
from pileus.kube.errors import CredentialsError


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the choice depends on beside flags and environment; tests give others."""

    clock: Clock = field(default_factory=SystemClock)
    service_account: Path = SERVICE_ACCOUNT


HERE = Surroundings()


def load_access(
    kubeconfig: str, master: str, environ: Mapping[str, str], here: Surroundings = HERE
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


def load_delegated_access(
    flag: str, kubeconfig: str, environ: Mapping[str, str], here: Surroundings = HERE
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
    flag: str, kubeconfig: str, master: str, environ: Mapping[str, str], here: Surroundings
) -> Access:
    path = Path(kubeconfig).absolute()
    try:
        return kubeconfig_access(path, master, Place(path.parent, environ, here.clock))
    except (InvalidConfiguration, CredentialsError) as e:
        raise InvalidConfiguration(f"invalid configuration: {flag}={path}: {e}") from e


def _bare(name: str, server: str, environ: Mapping[str, str], here: Surroundings) -> Access:
    try:
        return bare_access(server, Place(Path(), environ, here.clock))
    except InvalidConfiguration as e:
        raise InvalidConfiguration(f"invalid configuration: {name}: {e}") from e
