"""Flags about reaching the API server, about logs, and about the command itself."""

from pileus.app import version_flag
from pileus.settings.flags import Flag, Group, switch
from pileus.settings.kinds import BOOL, DURATION, LEVEL, MODULES, QUANTITY, STRING

_MINUTE = 60.0

KUBECONFIG = Flag(
    "kubeconfig",
    STRING,
    "",
    "Kubeconfig file; empty: the pod's service account.",
)
MASTER = Flag("master", STRING, "", "URL of the API server; overrides the kubeconfig.")
NODE_STATUS_UPDATE_FREQUENCY = Flag(
    "node-status-update-frequency",
    DURATION,
    5 * _MINUTE,
    "Pause between two updates of the nodes' addresses.",
)
MISC = Group("Misc", (KUBECONFIG, MASTER, NODE_STATUS_UPDATE_FREQUENCY))

_SPLIT = "[Alpha] In {} format, write errors to stderr and the rest to stdout."
_BUFFER = "[Alpha] In {} format with split streams, size of the buffer for info messages; 0: none."
_GATE = "Needs the feature gate LoggingAlphaOptions."

V = Flag("v", LEVEL, 0, "Log verbosity: 0 least, 10 most.", short="v")
VMODULE = Flag(
    "vmodule",
    MODULES,
    (),
    "Log verbosity by source file: comma-separated PATTERN=N; text format only.",
)
LOGGING_FORMAT = Flag("logging-format", STRING, "text", "Log format: text or json.")
LOG_FLUSH_FREQUENCY = Flag(
    "log-flush-frequency", DURATION, 5.0, "Maximum time until a log line is written."
)
LOG_TEXT_SPLIT_STREAM = switch("log-text-split-stream", _SPLIT.format("text"), details=_GATE)
LOG_JSON_SPLIT_STREAM = switch("log-json-split-stream", _SPLIT.format("JSON"), details=_GATE)
LOG_TEXT_INFO_BUFFER_SIZE = Flag(
    "log-text-info-buffer-size", QUANTITY, 0, _BUFFER.format("text"), details=_GATE
)
LOG_JSON_INFO_BUFFER_SIZE = Flag(
    "log-json-info-buffer-size", QUANTITY, 0, _BUFFER.format("JSON"), details=_GATE
)
VERSION = Flag(
    "version",
    version_flag.VERSION,
    version_flag.VersionRequest(),
    "Print the version and exit; =raw prints all version fields; =vX.Y.Z-... overrides "
    "the reported version.",
    only_flag=True,
)
HELP = Flag(
    "help", BOOL, default=False, help="Print this text and exit.", short="h", only_flag=True
)
GLOBAL = Group(
    "Global",
    (
        V,
        VMODULE,
        LOGGING_FORMAT,
        LOG_FLUSH_FREQUENCY,
        LOG_TEXT_SPLIT_STREAM,
        LOG_JSON_SPLIT_STREAM,
        LOG_TEXT_INFO_BUFFER_SIZE,
        LOG_JSON_INFO_BUFFER_SIZE,
        VERSION,
        HELP,
    ),
)
