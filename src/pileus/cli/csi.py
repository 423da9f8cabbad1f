"""`pileus csi`: serves a CSI driver for the volumes of a cloud, on a unix socket.

Exit codes: 0 stopped · 1 wrong flags or files · 2 a bug · 255 the environment is not usable.
"""

import importlib
import traceback
from collections.abc import Callable, Sequence
from typing import Any, cast

from pileus.app import help as help_text
from pileus.app import validate
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.settings import TABLE, CommandSettings, build_config
from pileus.cli.run import BUG, FAILED, FATAL
from pileus.cli.terminal import Terminal
from pileus.cloud.choice import CloudSettings
from pileus.csi.address import HttpAddress, parse_address
from pileus.kube.settings import ClientSettings
from pileus.objects.settings import ClusterSettings
from pileus.settings.declare import flag_of
from pileus.settings.flags import Flag, FlagError, Group, Table
from pileus.settings.kinds import INT, STRING
from pileus.settings.sources import gather
from pileus.settings.values import Values
from pileus.suggest import did_you_mean
from pileus.telemetry.log import Log
from pileus.telemetry.logs import logging_to
from pileus.telemetry.mask import masked
from pileus.telemetry.settings import LogSettings
from pileus.version import installing

log = Log(__name__)

TEXT = """Serve a CSI driver for the volumes of a cloud, on a unix socket.

Mode controller creates, attaches, resizes and snapshots volumes; it needs the cloud. Mode node
formats and mounts them; it runs on every node, as root, without credentials of the cloud."""
CLOSING = "Other flags of the manager are accepted and have no effect (pileus run --help)."
MODES = ("controller", "node", "all")
MODE = Flag("mode", STRING, "all", "Services to run: controller, node or all.", only_flag=True)
ENDPOINT = Flag(
    "endpoint",
    STRING,
    "",
    "Unix socket to serve on; empty: $CSI_ENDPOINT, else that of --kubelet-dir, else "
    "unix:///csi/csi.sock.",
    only_flag=True,
)
NODE_NAME = Flag(
    "node-name", STRING, "", "Name of this node; empty: $NODE_NAME. For mode node.", only_flag=True
)
NODE_ID = Flag(
    "node-id",
    STRING,
    "",
    "ID of this node's instance; empty: that in the provider ID of its Node. For mode node.",
    only_flag=True,
)
MAX_VOLUMES = Flag(
    "max-volumes-per-node",
    INT,
    0,
    "Volumes that can be attached to this node; 0: no limit is known. For mode node.",
    only_flag=True,
)
KUBELET_DIR = Flag(
    "kubelet-dir",
    STRING,
    "",
    "Folder of this node's kubelet, such as /var/lib/kubelet: the driver registers itself there; "
    "empty: it does not. For mode node.",
    only_flag=True,
)
HTTP_ENDPOINT = Flag(
    "http-endpoint",
    STRING,
    "",
    "Address of the HTTP port with the metrics: HOST:PORT, or :PORT for all addresses; empty: no "
    "port is opened.",
    only_flag=True,
)
METRICS_PATH = Flag(
    "metrics-path",
    STRING,
    "/metrics",
    "Path of the metrics on the port of --http-endpoint.",
    only_flag=True,
)
OWN = Group(
    "CSI",
    (
        *(MODE, ENDPOINT, KUBELET_DIR, NODE_NAME, NODE_ID, MAX_VOLUMES),
        *(HTTP_ENDPOINT, METRICS_PATH),
    ),
    ours=True,
)
HELP = flag_of(CommandSettings, "help")
SHARED = (
    flag_of(CloudSettings, "provider"),
    flag_of(CloudSettings, "config_file"),
    flag_of(ClusterSettings, "id"),
    flag_of(ClientSettings, "kubeconfig"),
    flag_of(LogSettings, "verbosity"),
    HELP,
)


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    usage = f"{program} --cloud-provider=NAME [flags]"
    table = Table((OWN, *TABLE.groups))
    try:
        settings = gather(table, program, arguments, terminal.environment)
    except FlagError as error:
        return terminal.misused(program, usage, str(error), error.hint)
    values = settings.values
    if values[HELP]:
        terminal.out.write(_help(usage, terminal))
        return 0
    terminal.err.writelines(f"{note}\n" for note in settings.notes)
    if problem := _problem(values):
        return terminal.refuse(problem)
    return _run(values, terminal)


def _problem(values: Values) -> str:
    mode, limit, kubelet = values[MODE], values[MAX_VOLUMES], values[KUBELET_DIR]
    if mode not in MODES:
        return f'--mode cannot be "{mode}" (known: {", ".join(MODES)}){did_you_mean(mode, MODES)}'
    if limit < 0:
        return f"--max-volumes-per-node cannot be {limit}: give 0 or more"
    if kubelet and mode == "controller":
        return "--kubelet-dir is for mode node: the controller is not registered with a kubelet"
    if kubelet and not kubelet.startswith("/"):
        return f'--kubelet-dir: "{kubelet}" is not an absolute path, such as /var/lib/kubelet'
    return _http_problem(values)


def _http_problem(values: Values) -> str:
    try:
        _http_address(values)
    except ValueError as error:
        return f"--http-endpoint: {error}"
    path = values[METRICS_PATH]
    return "" if path.startswith("/") else f'--metrics-path: "{path}" does not begin with /'


def _http_address(values: Values) -> HttpAddress | None:
    return parse_address(values[HTTP_ENDPOINT]) if values[HTTP_ENDPOINT] else None


def _run(values: Values, terminal: Terminal) -> int:
    config = build_config(values)
    if wrong := (*validate.logging_problems(config), *validate.problems(config)):
        return terminal.refuse(masked(validate.together(wrong)))
    try:
        module = importlib.import_module("pileus.csi.run")
    except ImportError as error:
        return terminal.refuse(
            f"pileus csi needs more packages: {error}", f"Fix: {installing('csi')}"
        )
    with logging_to(config[LogSettings], terminal.out, terminal.err) as verbosity:
        options = module.CsiOptions(
            endpoint=values[ENDPOINT] or terminal.environment.get("CSI_ENDPOINT", ""),
            mode=module.Mode(values[MODE]),
            kubelet=values[KUBELET_DIR].rstrip("/"),
            node_id=values[NODE_ID],
            node_name=values[NODE_NAME] or terminal.environment.get("NODE_NAME", ""),
            http_address=_http_address(values),
            metrics_path=values[METRICS_PATH],
            max_volumes=values[MAX_VOLUMES],
        )
        return _guarded(
            lambda: cast("Callable[..., int]", module.run)(config, options, verbosity), terminal
        )


def _guarded(run: Callable[[], Any], terminal: Terminal) -> int:
    try:
        return int(run())
    except CommandFailed as error:
        terminal.err.write(f"Error: {masked(str(error))}\n")
        return FAILED
    except Fatal as error:
        log.fatal(masked(str(error)))
        return FATAL
    except Exception:  # noqa: BLE001 -- the end of the program: a bug is printed in full, without secrets
        terminal.err.write(masked(traceback.format_exc()))
        return BUG


def _help(usage: str, terminal: Terminal) -> str:
    shown = Group("", (*OWN.flags, *SHARED))
    width = help_text.width_of(terminal.width(terminal.out))
    return (
        f"{help_text.wrapped(TEXT, width)}\nUsage:\n  {usage}\n"
        f"{help_text.section(shown, width)}\n{help_text.wrapped(CLOSING, width)}"
    )
