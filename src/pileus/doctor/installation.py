"""The installed manager, and the commands that change an installation. Pure.

Every command is built from what runs: flags, namespace, image, Secret, and whether Helm installed
it. Without an installation the flags are those that the doctor was given.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping

from pileus.dataclass import dataclass
from pileus.doctor.records import Container, Workload
from pileus.version import COMPONENT, INSTALLED, PROGRAM

RELEASE, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
VARIABLE = "PILEUS_"
FILES = ("--config=", "--leader-migration-config=")
"""Flags whose file is in the pod, and not where the doctor runs."""
IN_THE_POD = ("/", "file:/")
"""How values begin that name a file of the pod."""
RIGHTS, CSI, WEBHOOKS = (f"--selector={COMPONENT}={part}" for part in ("rights", "csi", "webhooks"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A Deployment or DaemonSet that runs the manager."""

    kind: str
    namespace: str
    name: str
    account: str
    """Namespace and name of its service account."""
    image: str
    arguments: tuple[str, ...]
    """The manager's flags, as the process gets them."""
    variables: Mapping[str, str]
    """Environment variables of the container."""
    maps: tuple[str, ...]
    """ConfigMaps with further variables."""
    secret: str
    """The Secret with the files of the manager; empty: none."""
    replicas: int
    release: str
    """The Helm release that it belongs to; empty: none."""

    @property
    def reads_files(self) -> bool:
        """Whether settings are in files of the pod, so that they are not known here."""
        return any(one.startswith(FILES) for one in self.arguments)

    @property
    def selector(self) -> str:
        return f"{self.kind.lower()}/{self.name}"


def installation_of(workload: Workload) -> Installation | None:
    """Returns the manager that a workload runs; None if it runs another program."""
    pod = workload.spec.template.spec if workload.spec and workload.spec.template else None
    found = next((each for each in pod.containers if _is_manager(each)), None) if pod else None
    if pod is None or found is None:
        return None
    meta = workload.metadata
    secrets = {each.name: each.secret.secret_name for each in pod.volumes or () if each.secret}
    return Installation(
        kind=workload.kind,
        namespace=meta.namespace,
        name=meta.name,
        account=f"{meta.namespace}/{pod.service_account_name}",
        image=found.image,
        arguments=tuple(found.args or ()),
        variables={each.name: each.value for each in found.env or ()},
        maps=tuple(
            each.config_map_ref.name for each in found.env_from or () if each.config_map_ref
        ),
        secret=secrets.get("cloud-config", ""),
        replicas=1
        if workload.spec is None or workload.spec.replicas is None
        else workload.spec.replicas,
        release=(meta.annotations or {}).get(RELEASE, ""),
    )


def _is_manager(container: Container) -> bool:
    command = tuple(container.command or ())
    return bool(command) and (
        command[0].rpartition("/")[2] == PROGRAM or command[:2] == ("pileus", "run")
    )


def manifests(found: Installation | None, given: Iterable[str], *more: str) -> str:
    """Returns the command that prints the manifests of this installation."""
    flags = [*_flags(found)] if found and not found.reads_files else [*given, *_place(found)]
    return " ".join(("pileus manifests", *map(shlex.quote, (*flags, *more))))


def _flags(found: Installation) -> Iterator[str]:
    for one in found.arguments:
        name, _, value = one.partition("=")
        if name == "--cloud-config" and found.secret:
            yield f"--cloud-config-secret={found.secret}"
            key = value.rpartition("/")[2]
            if key != "cloud-config":
                yield f"--cloud-config-secret-key={key}"
        elif name != "--cloud-config":
            yield one
    for name, value in found.variables.items():
        if name.startswith(VARIABLE) and name != f"{VARIABLE}CLOUD_CONFIG":
            yield f"--{name.removeprefix(VARIABLE).lower().replace('_', '-')}={value}"
    if f"{VARIABLE}CLOUD_CONFIG" in found.variables and found.secret:
        yield f"--cloud-config-secret={found.secret}"
    yield from _place(found)


def _place(found: Installation | None) -> Iterator[str]:
    """Yields the flags of `pileus manifests` itself."""
    if found is None:
        return
    if found.kind == "DaemonSet":
        yield "--daemonset"
    elif found.replicas > 0:
        yield f"--replicas={found.replicas}"
    yield f"--image={found.image}"
    yield f"--namespace={found.namespace}"
    host, port = (found.variables.get(f"KUBERNETES_SERVICE_{one}", "") for one in ("HOST", "PORT"))
    if port:
        shown = f"[{host}]" if ":" in host else host
        yield f"--api-server={shown}:{port}" if host else "--api-server=node"


def reading_flags(found: Installation) -> tuple[str, ...]:
    """Returns the manager's flags for a command that only reads, outside of its pod."""
    if found.reads_files:
        return ()
    variables = (
        f"--{name.removeprefix(VARIABLE).lower().replace('_', '-')}={value}"
        for name, value in found.variables.items()
        if name.startswith(VARIABLE)
    )
    flags = (*found.arguments, *variables)
    return tuple(one for one in flags if not one.partition("=")[2].startswith(IN_THE_POD))


def in_pod(found: Installation) -> str:
    """Returns the command that runs `…` in a pod, with the manager's flags; empty: no pod runs."""
    if not found.replicas:
        return ""
    where = f"kubectl --namespace={found.namespace} exec {found.selector} --"
    return " ".join((where, "…", *map(shlex.quote, found.arguments)))


def install(found: Installation | None, given: Iterable[str]) -> str:
    """Returns the command that makes the manager run, or that shows why it does not."""
    if found is None:
        return f"{manifests(None, given)} | kubectl apply -f -"
    where = f"kubectl --namespace={found.namespace}"
    if found.kind == "Deployment" and found.replicas == 0:
        return f"{where} scale deployment {found.name} --replicas=2"
    return f"{where} logs {found.selector} --all-pods --tail=50   # see why it does not lead"


def restore_rights(found: Installation | None, given: Iterable[str], account: str) -> str:
    """Returns the command that restores the rights of the accounts, and changes nothing else."""
    if found and found.release:
        return _from_release(found, RIGHTS)
    namespace, _, name = account.partition("/")
    where = () if found else (f"--namespace={namespace}",)
    command = manifests(found, given, *where)
    if name != INSTALLED:
        return f"give service account {account} the roles that this prints: {command}"
    return f"{command} | kubectl apply -f - {RIGHTS}"


def _from_release(found: Installation, selector: str) -> str:
    """Returns the command that applies a part of what a Helm release has."""
    read = f"helm get manifest {found.release} --namespace={found.namespace}"
    owner = f"{RELEASE}={found.release} {RELEASE_NAMESPACE}={found.namespace}"
    # Without its ownership, Helm would neither upgrade nor delete what kubectl has created.
    return (
        f"{read} | kubectl apply -f - {selector} && "
        f"{read} | kubectl annotate --overwrite -f - {owner} && "
        f"{read} | kubectl label --overwrite -f - app.kubernetes.io/managed-by=Helm"
    )


def register_webhooks(found: Installation | None, given: Iterable[str]) -> str:
    """Returns the command that registers the webhooks, and changes nothing else.

    The address of a manager outside of the cluster is not known: its place is marked.
    """
    if found and found.release:
        return _from_release(found, WEBHOOKS)
    outside = () if found else ("--external", "--webhook-url=https://HOST:PORT")
    command = f"{manifests(found, given, *outside)} | kubectl apply -f - {WEBHOOKS}"
    return command if found else f"{command}   # HOST:PORT: where API servers reach the manager"


def install_csi(found: Installation | None, given: Iterable[str], *, sidecars: bool) -> str:
    """Returns the command that installs the CSI driver beside the manager.

    For a release of Helm, returns text instead: the place of the chart is not known. What
    kubectl creates would keep the release from installing the driver later.
    """
    if found and found.release:
        more = "" if sidecars else " and csi.sidecars=false"
        return (
            f"upgrade the Helm release {found.release} in namespace {found.namespace} with the "
            f"values csi.enabled=true{more}, and an image with the extra csi"
        )
    flags = ("--csi",) if sidecars else ("--csi", "--csi-without-sidecars")
    command = f"{manifests(found, given, *flags)} | kubectl apply -f - {CSI}"
    return f"{command}   # the image needs the extra csi: see docs/guides/volumes.md"
