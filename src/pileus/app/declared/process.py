"""Flags about reaching the API server, about logs, and about the command itself."""

from pileus.app import reported
from pileus.app.flags import Flag, Group, switch
from pileus.app.kinds import BOOL, DURATION, LEVEL, MODULES, QUANTITY, STRING

_MINUTE = 60.0

KUBECONFIG = Flag(
    "kubeconfig",
    STRING,
    "",
    "kubeconfig file with the API server and the credentials; empty: those of the pod.",
)
MASTER = Flag(
    "master", STRING, "", "Address of the API server; goes before the one in the kubeconfig."
)
NODE_STATUS_UPDATE_FREQUENCY = Flag(
    "node-status-update-frequency",
    DURATION,
    5 * _MINUTE,
    "Pause between two rounds over the nodes' addresses.",
)
MISC = Group("Misc", (KUBECONFIG, MASTER, NODE_STATUS_UPDATE_FREQUENCY))

_ALPHA = "[Alpha] Needs the gate LoggingAlphaOptions. "
_SPLIT = _ALPHA + "In {} format, write errors to stderr and the rest to stdout."
_BUFFER = _ALPHA + (
    "In {} format with split streams, bytes of information that may wait to be written "
    "together (512, 1K, 2Ki, 3M); 0: none."
)

V = Flag("v", LEVEL, 0, "How much is logged: 0 least, 10 most.", short="v")
VMODULE = Flag(
    "vmodule",
    MODULES,
    (),
    "Other levels for some source files, as pattern=N with * and ? in the pattern (text format "
    "only).",
)
LOGGING_FORMAT = Flag("logging-format", STRING, "text", "How lines are written: text or json.")
LOG_FLUSH_FREQUENCY = Flag(
    "log-flush-frequency", DURATION, 5.0, "Longest time that a log line waits to be written."
)
LOG_TEXT_SPLIT_STREAM = switch("log-text-split-stream", _SPLIT.format("text"))
LOG_JSON_SPLIT_STREAM = switch("log-json-split-stream", _SPLIT.format("JSON"))
LOG_TEXT_INFO_BUFFER_SIZE = Flag("log-text-info-buffer-size", QUANTITY, 0, _BUFFER.format("text"))
LOG_JSON_INFO_BUFFER_SIZE = Flag("log-json-info-buffer-size", QUANTITY, 0, _BUFFER.format("JSON"))
VERSION = Flag(
    "version",
    reported.VERSION,
    reported.VersionRequest(),
    "Print the version and end; with =raw all that is known about it. =vX.Y.Z-... only changes "
    "the version that is reported.",
    only_flag=True,
)
HELP = Flag("help", BOOL, default=False, help="Print this text and end.", short="h", only_flag=True)
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
