"""From the command line of `pileus manifests` to a `Choice`.

The command takes the manager's flags and a few of its own. Flags of the manager become arguments of
the container; files that they name become a Secret.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from ipaddress import ip_address
from pathlib import Path, PurePosixPath

from pileus.admission.settings import WebhookSettings
from pileus.app import validate
from pileus.app.migration import DEFAULT, MigrationError, read_migration
from pileus.app.settings import TABLE, CommandSettings, LeaderMigrationSettings, build_config
from pileus.cloud.choice import CloudChoice, CloudSettings
from pileus.cloud.errors import Misconfigured
from pileus.cloud.registry import NO_PROVIDER, PROVIDERS, Registry
from pileus.deployment.alerts import RUNBOOKS
from pileus.deployment.choice import (
    CONFIG_KEY,
    DEFAULT_IMAGE,
    DEFAULT_PROMETHEUS,
    NODE,
    SECURE_PORT,
    Account,
    ApiServer,
    Choice,
    CsiChoice,
    InvalidChoice,
    Monitor,
    Monitoring,
    Shape,
)
from pileus.deployment.csi_flags import CSI, CSI_FLAGS, csi_choice
from pileus.deployment.manifests import CONFIG_FOLDER, PROBED
from pileus.kube.settings import ClientSettings
from pileus.objects.rights import KUBE_SYSTEM
from pileus.server.authorization import always_allowed
from pileus.server.settings import ServerSettings, ServingOptions
from pileus.settings.config import Config
from pileus.settings.declare import flag_of
from pileus.settings.feature_gates import WEBHOOK
from pileus.settings.flags import AnyFlag, Flag, Group, switch
from pileus.settings.kinds import INT, STRING, STRINGS
from pileus.settings.values import Source, Values
from pileus.suggest import did_you_mean

HA = switch("ha", "Deployment with two replicas on control-plane nodes. This is the default.")
DAEMON_SET = switch("daemonset", "DaemonSet with one pod on each control-plane node.")
EXTERNAL = switch(
    "external", "Only the service account and its rights, for a manager outside of the cluster."
)
REPLICAS = Flag("replicas", INT, 2, "Replicas of the Deployment.", only_flag=True)
IMAGE = Flag("image", STRING, DEFAULT_IMAGE, "Image of the manager.", only_flag=True)
NAMESPACE = Flag(
    "namespace",
    STRING,
    KUBE_SYSTEM,
    "Namespace of the manager. The Lease and the accounts of controllers stay in kube-system.",
    short="n",
    only_flag=True,
)
API_SERVER = Flag(
    "api-server",
    STRING,
    "",
    f"Address of the API server for the pods: HOST[:PORT], a URL, or '{NODE}' for the pod's own "
    "node; empty: the cluster's service IP.",
    only_flag=True,
)
SECRET = Flag(
    "cloud-config-secret",
    STRING,
    "",
    "Existing Secret with the provider's file, instead of the file of --cloud-config.",
    only_flag=True,
)
SECRET_KEY = Flag(
    "cloud-config-secret-key",
    STRING,
    CONFIG_KEY,
    "Key of the file in the Secret of --cloud-config-secret, such as cloud.conf.",
    only_flag=True,
)
MONITORING = Flag(
    "monitoring",
    STRING,
    "",
    "Also objects for the Prometheus operator and Grafana; 'service' or 'pod' is the kind of "
    "monitor; empty: none.",
    only_flag=True,
)
PROMETHEUS = Flag(
    "prometheus-account",
    STRING,
    DEFAULT_PROMETHEUS,
    "Service account of Prometheus, which may read /metrics; for --monitoring=service.",
    only_flag=True,
)
MONITORING_LABELS = Flag(
    "monitoring-labels",
    STRINGS,
    (),
    "Labels by which the operator selects monitors and rules, such as release=prometheus.",
    only_flag=True,
)
RUNBOOK_URL = Flag(
    "runbook-url",
    STRING,
    RUNBOOKS,
    "Start of the alerts' runbook_url, which the file name of the alert's page follows. The "
    "default is the folder in the repository.",
    only_flag=True,
)
WEBHOOK_URL = Flag(
    "webhook-url",
    STRING,
    "",
    "https://HOST:PORT at which API servers reach the webhooks, instead of a Service; needed with "
    "--external.",
    only_flag=True,
)
WEBHOOK_CA = Flag(
    "webhook-ca-file",
    STRING,
    "",
    "CA of --webhook-tls-cert-file, for the webhook configurations; empty: the system's CAs.",
    only_flag=True,
)
OUTPUT = Flag(
    "output",
    STRING,
    "yaml",
    "Output: yaml, or with --external the unit that runs the manager: systemd.",
    short="o",
    only_flag=True,
)
OUTPUTS = ("yaml", "systemd")
OWN = Group(
    "Manifests",
    (
        *(HA, DAEMON_SET, EXTERNAL, REPLICAS, IMAGE, NAMESPACE, API_SERVER, SECRET, SECRET_KEY),
        *(OUTPUT, MONITORING, PROMETHEUS, MONITORING_LABELS, RUNBOOK_URL),
        *(WEBHOOK_URL, WEBHOOK_CA),
        *CSI_FLAGS,
    ),
    ours=True,
)

CONFIG = flag_of(CommandSettings, "config_file")
CLOUD_CONFIG = flag_of(CloudSettings, "config_file")
MIGRATION_CONFIG = flag_of(LeaderMigrationSettings, "config_file")
PORT = flag_of(ServingOptions, "port")
PORT_SHARING = flag_of(ServingOptions, "permit_port_sharing")
ACCESS = tuple(flag_of(ClientSettings, name) for name in ("kubeconfig", "master"))
FILES = {CONFIG: "config.yaml", MIGRATION_CONFIG: "leader-migration.yaml"}
"""Flags whose file goes into the Secret, and its name there."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_URL = re.compile(r"https://(\[[0-9a-fA-F:.]+\]|[^\s\[\]:/@?#]+)(:\d{1,5})?")
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_IMAGE = re.compile(r"[^\s]+")

OPENSTACK = "openstack"
Read = Callable[[str], bytes]
"""Returns the content of a file. Raises OSError."""


def chosen(values: Values, read: Read, registry: Registry = PROVIDERS) -> Choice:
    """Returns what the command line asks for. Raises InvalidChoice."""
    read = cache(read)  # a pipe can be read once only
    shape = _shape(values)
    values = _with_port(values, shape)
    config = build_config(values)
    _check_output(values[OUTPUT], shape)
    _check_names(values)
    _check(config, registry)
    if shape is not Shape.EXTERNAL:
        _check_probes(config[ServerSettings])
    csi = csi_choice(values, config, shape)
    files, renamed = _files(values, config, read) if shape is not Shape.EXTERNAL else ({}, {})
    return Choice(
        config=config,
        arguments=tuple(_arguments(values, renamed, shape)),
        shape=shape,
        namespace=values[NAMESPACE],
        image=values[IMAGE],
        replicas=_replicas(values, shape),
        api_server=ApiServer.parsed(values[API_SERVER]) if values[API_SERVER] else None,
        files=files,
        secret=values[SECRET],
        secret_key=values[SECRET_KEY],
        migration_lease=_migration_lease(values[MIGRATION_CONFIG]),
        monitoring=_monitoring(values, config, shape),
        csi=csi,
        webhook_url=_webhook_url(values, config[WebhookSettings], shape),
        webhook_ca=_webhook_ca(values, config[WebhookSettings], read),
        warnings=(
            *_missing_files(values, config[CloudSettings], shape),
            *_config_warnings(config[CloudSettings].clouds, read),
            *_image_warnings(values, csi),
        ),
    )


def _image_warnings(values: Values, csi: CsiChoice | None) -> Iterator[str]:
    if csi and not values.given(IMAGE) and (csi.sidecars or not csi.node_image):
        yield (
            f"--{CSI.name} without --{IMAGE.name}: {DEFAULT_IMAGE} lacks the extra csi, and the "
            "programs that mount and format volumes. Fix: make image EXTRAS=csi "
            f"IMAGE=REGISTRY/pileus:TAG, push it, and add --{IMAGE.name}=REGISTRY/pileus:TAG"
        )


def _with_port(values: Values, shape: Shape) -> Values:
    if shape is Shape.EXTERNAL or values.given(PORT):
        return values
    return values.with_flag(PORT, SECURE_PORT)


def _webhook_url(values: Values, settings: WebhookSettings, shape: Shape) -> str:
    url = values[WEBHOOK_URL].rstrip("/")
    if settings.entries and not settings.gates.enabled(WEBHOOK):
        raise InvalidChoice(f"--webhooks needs --feature-gates={WEBHOOK.name}=true")
    if not (settings.chosen() and settings.serving.port):
        if url:
            raise InvalidChoice(f"--{WEBHOOK_URL.name} needs --webhooks")
        return ""
    if not url and shape is Shape.EXTERNAL:
        port = settings.serving.port
        raise InvalidChoice(
            f"--webhooks and --external need --{WEBHOOK_URL.name}, the address at which API "
            f"servers reach the manager, such as https://HOST:{port}"
        )
    if url and not _URL.fullmatch(url):
        raise InvalidChoice(
            f'--{WEBHOOK_URL.name}: "{url}" is not an address: use https://HOST:PORT'
        )
    return url


def _webhook_ca(values: Values, settings: WebhookSettings, read: Read) -> bytes:
    path = values[WEBHOOK_CA]
    if path and (settings.is_managed or not settings.chosen()):
        raise InvalidChoice(
            f"--{WEBHOOK_CA.name} needs --webhooks and --webhook-tls-cert-file: otherwise the "
            "leader creates the CA itself"
        )
    return _content(WEBHOOK_CA, path, read) if path else b""


def _migration_lease(path: str) -> str:
    try:
        return read_migration(Path(path)).leader_name if path else DEFAULT.leader_name
    except MigrationError as error:
        raise InvalidChoice(f"--{MIGRATION_CONFIG.name}: {error}") from error


def _monitoring(values: Values, config: Config, shape: Shape) -> Monitoring | None:
    if not values[MONITORING]:
        for flag in (PROMETHEUS, MONITORING_LABELS, RUNBOOK_URL):
            if values.given(flag):
                raise InvalidChoice(f"--{flag.name} needs --monitoring=service or --monitoring=pod")
        return None
    if wrong := _unreachable(config):
        raise InvalidChoice(f"{wrong}: remove it, or --monitoring")
    return Monitoring(
        monitor=_monitor(values[MONITORING], shape),
        account=Account.parsed(PROMETHEUS.name, values[PROMETHEUS]),
        labels=dict(_label(each) for each in values[MONITORING_LABELS]),
        runbooks=values[RUNBOOK_URL],
    )


def _unreachable(config: Config) -> str | None:
    serving = config[ServerSettings].serving
    if not serving.port:
        return "--secure-port=0 serves no metrics"
    if ip_address(serving.bind_address or "::").is_loopback:
        return f"--bind-address={serving.bind_address} cannot be reached by Prometheus"
    return None


def _monitor(text: str, shape: Shape) -> Monitor:
    kinds = [each.value for each in Monitor]
    if text not in kinds:
        raise InvalidChoice(
            f'--monitoring: "{text}" is not a kind of monitor: use {" or ".join(kinds)}'
            f"{did_you_mean(text, kinds)}"
        )
    if shape is Shape.EXTERNAL and text == Monitor.POD.value:
        raise InvalidChoice("--monitoring=pod and --external: there are no pods to monitor")
    return Monitor(text)


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InvalidChoice(
            f'--{MONITORING_LABELS.name}: "{text}" is not a label: use NAME=VALUE, comma-separated'
        )
    return name, value


def _check(config: Config, registry: Registry) -> None:
    if not config[CloudSettings].clouds[0].provider:
        raise InvalidChoice(f"--cloud-provider is not set: use {_known(registry)}")
    if wrong := (*validate.logging_problems(config), *validate.problems(config)):
        raise InvalidChoice(validate.together(wrong))
    for cloud in config[CloudSettings].clouds:
        if cloud.provider in NO_PROVIDER:
            raise InvalidChoice(
                f"--cloud-provider={cloud.provider} selects no provider: it is the value for "
                f"kubelets. Use {_known(registry)}"
            )
        try:
            registry.get(cloud.provider)
        except Misconfigured as error:
            raise InvalidChoice(f"{error}{_install_hint(str(error))}") from error


def _install_hint(problem: str) -> str:
    """Returns what to do about a provider that is not installed, unless the problem names it."""
    if "Fix: " in problem or "did you mean" in problem:
        return ""
    return ". Fix: install the provider's package here, or run the command in your image"


def _check_output(given: str, shape: Shape) -> None:
    if given not in OUTPUTS:
        known = ", ".join(OUTPUTS)
        raise InvalidChoice(
            f'--output cannot be "{given}" (known: {known}){did_you_mean(given, OUTPUTS)}'
        )
    if given == "systemd" and shape is not Shape.EXTERNAL:
        raise InvalidChoice("--output=systemd is for a manager outside the cluster: add --external")


def _check_names(values: Values) -> None:
    forms = ((NAMESPACE, _LABEL), (SECRET, _SUBDOMAIN), (SECRET_KEY, _KEY), (IMAGE, _IMAGE))
    for flag, form in forms:
        name = values[flag]
        if not (form.fullmatch(name) or (flag is SECRET and not name)):
            raise InvalidChoice(f'"{name}" is not a valid name for --{flag.name}')


def _check_probes(server: ServerSettings) -> None:
    allowed = server.authorization.always_allow_paths
    missing = [path for path in PROBED if not always_allowed(path, allowed)]
    if server.serving.port and missing:
        raise InvalidChoice(
            f"--authorization-always-allow-paths lacks {' and '.join(missing)}, which kubelets "
            "probe without credentials: add them"
        )


def _known(registry: Registry) -> str:
    return " or ".join(registry.names()) or "an installed provider; there is none"


def _shape(values: Values) -> Shape:
    given = [flag for flag in (HA, DAEMON_SET, EXTERNAL) if values[flag]]
    if len(given) > 1:
        names = " and ".join(f"--{flag.name}" for flag in given)
        raise InvalidChoice(f"{names} exclude each other: give one of them")
    return Shape(given[0].name) if given else Shape.DEPLOYMENT


def _replicas(values: Values, shape: Shape) -> int:
    count = values[REPLICAS]
    if values.given(REPLICAS) and shape is not Shape.DEPLOYMENT:
        raise InvalidChoice(f"--replicas is for a Deployment: remove it or --{shape.value}")
    if count < 1:
        raise InvalidChoice(f"--replicas={count}: use 1 or more")
    return count


def _files(
    values: Values, config: Config, read: Read
) -> tuple[dict[str, bytes], dict[AnyFlag, str]]:
    """Returns the files for the Secret by name, and the values of flags that name them."""
    found: dict[str, bytes] = {}
    renamed: dict[AnyFlag, str] = {}
    for flag, name in FILES.items():
        if path := str(values[flag]):
            found[name] = _content(flag, path, read)
            renamed[flag] = f"{CONFIG_FOLDER}/{name}"
    if values[SECRET]:
        return _with_secret(values, found)
    if values.given(SECRET_KEY):
        raise InvalidChoice(f"--{SECRET_KEY.name} needs --{SECRET.name}")
    return found, renamed | _cloud_configs(config, found, read)


def _with_secret(
    values: Values, found: Mapping[str, bytes]
) -> tuple[dict[str, bytes], dict[AnyFlag, str]]:
    if found or values[CLOUD_CONFIG]:
        raise InvalidChoice(
            f"--cloud-config-secret={values[SECRET]} replaces the files of --cloud-config, "
            "--config and --leader-migration-config: put them into the Secret and remove the flags"
        )
    return {}, {CLOUD_CONFIG: f"{CONFIG_FOLDER}/{values[SECRET_KEY]}"}


def _cloud_configs(config: Config, found: dict[str, bytes], read: Read) -> dict[AnyFlag, str]:
    clouds = config[CloudSettings].clouds
    if config[CloudSettings].listed or not config[CloudSettings].config_file:
        return {}
    paths: list[str] = []
    for cloud in clouds:
        name = CONFIG_KEY if len(clouds) == 1 else f"{CONFIG_KEY}-{cloud.name}"
        if cloud.config_file:
            found[name] = _content(CLOUD_CONFIG, cloud.config_file, read)
        paths.append(f"{CONFIG_FOLDER}/{name}" if cloud.config_file else "")
    return {CLOUD_CONFIG: ",".join(paths)}


def _config_warnings(clouds: Iterable[CloudChoice], read: Read) -> Iterator[str]:
    """Checks the clouds' files. Raises InvalidChoice for one that the manager would refuse.

    A file that does not become part of the Secret is read where the manager runs, and may not
    exist here.
    """
    for cloud in clouds:
        if not cloud.config_file:
            continue
        try:
            content = read(cloud.config_file)
        except OSError as error:
            yield (
                f"{cloud.config_file} is not checked, because it cannot be read here: "
                f"{error.strerror or error}. The manager needs it where it runs"
            )
            continue
        yield from _checked(cloud.provider, cloud.config_file, content)


def _missing_files(values: Values, settings: CloudSettings, shape: Shape) -> Iterator[str]:
    """Yields a warning for each cloud without a file that its provider cannot do without."""
    has_pods = shape is not Shape.EXTERNAL
    if has_pods and values[SECRET]:
        if len(settings.clouds) > 1:
            yield (
                f"--{SECRET.name} has one file for {len(settings.clouds)} clouds: the manager "
                f"cannot start. Fix: give --{CLOUD_CONFIG.name} instead, with one file per "
                "provider, comma-separated"
            )
        return
    if not has_pods and values[OUTPUT] != "systemd":
        return
    for cloud in settings.clouds:
        if cloud.provider != OPENSTACK or cloud.config_file:
            continue
        if settings.listed:
            what = f'cloud "{cloud.name}" of the list clouds has no cloud-config'
            fix = f"add cloud-config: PATH to it in the file of --{CONFIG.name}"
        elif len(settings.clouds) > 1:
            what = f"--{CLOUD_CONFIG.name} has no file for {cloud.name}"
            fix = f"give --{CLOUD_CONFIG.name} one file per provider, comma-separated"
        else:
            what = f"--cloud-provider={cloud.provider} without --{CLOUD_CONFIG.name}"
            fix = f"add --{CLOUD_CONFIG.name}=PATH"
            if has_pods:
                fix += f", or --{SECRET.name} with the name of a Secret that has the file"
        yield f"{what}: the manager cannot start, because this provider needs a file. Fix: {fix}"


def _checked(provider: str, path: str, content: bytes) -> Sequence[str]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InvalidChoice(
            f'--{CLOUD_CONFIG.name}: "{path}" is not UTF-8 text (byte {error.start}); save it as '
            "UTF-8"
        ) from error
    if provider == OPENSTACK:
        from pileus.providers.openstack.load import check  # noqa: PLC0415 -- only where it is used

        try:
            return check(text, path)
        except Misconfigured as error:
            raise InvalidChoice(str(error)) from error
    return ()


def _content(flag: AnyFlag, path: str, read: Read) -> bytes:
    try:
        return read(path)
    except OSError as error:
        raise InvalidChoice(
            f"--{flag.name}: cannot read {PurePosixPath(path)}: {error.strerror or error}"
        ) from error


def _arguments(values: Values, renamed: Mapping[AnyFlag, str], shape: Shape) -> Iterator[str]:
    """Yields the manager's flags, sorted by name."""
    for flag in sorted(TABLE, key=lambda one: one.name):
        if flag in renamed:
            yield f"--{flag.name}={renamed[flag]}"
        elif (
            flag.name == PORT_SHARING.name and shape is Shape.DEPLOYMENT and not values.given(flag)
        ):
            yield f"--{flag.name}=true"
        elif flag in ACCESS and values.given(flag) and shape is not Shape.EXTERNAL:
            raise InvalidChoice(
                f"--{flag.name} is not for pods, which use their service account: remove it, or "
                "use --api-server for another address of the API server"
            )
        elif values.source(flag) in {Source.FLAG, Source.ENVIRONMENT}:
            yield f"--{flag.name}={_written(flag, values)}"


def _written(flag: AnyFlag, values: Values) -> str:
    text = flag.written(values[flag])
    if text is not None:
        return text
    raise InvalidChoice(f"--{flag.name}: give it in the file of --config instead")
