"""Settings of users: the keys of the configuration file and the annotations on a Service."""

import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import cast

import yaml

from pileus.cloud.errors import Misconfigured
from pileus.cloud.options import NAMES, TEXT, Kind, Option, Options, Values, integer, one_of
from pileus_lab.local.cloud import Behaviour
from pileus_lab.local.disks import Disks
from pileus_lab.local.disks import Kind as DiskKind
from pileus_lab.local.model.records import Pools, ProxyHeader
from pileus_lab.local.model.state import Settings

ENDPOINT_VARIABLE = "PILEUS_LOCAL"


class Network(StrEnum):
    LOOPBACK = "loopback"
    NETNS = "netns"
    NONE = "none"


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError("a number, 0 or more")
    return number


def _network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError("a CIDR such as 127.77.0.0/16") from error


NUMBER: Kind[float] = Kind("number", _number)
NETWORK: Kind[str] = Kind("CIDR", _network)
DEFAULT, PLAIN = Settings(), Behaviour()

ENDPOINT = Option(
    "endpoint",
    TEXT,
    "",
    f"Socket on which the cloud is served; empty: `${ENDPOINT_VARIABLE}`, or a file below "
    "`$XDG_RUNTIME_DIR`, or below `/tmp` one of the user's own.",
)
ZONE = Option("zone", TEXT, "", "Zone in which the manager itself runs; empty: the first one.")
STATE = Option("state", TEXT, "", "SQLite file that keeps the state; empty: memory alone.")
REGION = Option("region", TEXT, DEFAULT.region, "Name of the one region.")
ZONES = Option("zones", NAMES, DEFAULT.zones, "Names of its zones.")
INTERNAL_POOL = Option(
    "internalPool",
    NETWORK,
    "",
    f"Addresses of instances; on loopback, 127.x. Empty: a network that no other local cloud on "
    f"this machine uses, first `{DEFAULT.internal_pool}`.",
)
EXTERNAL_POOL = Option(
    "externalPool",
    NETWORK,
    "",
    f"External addresses of instances. Empty: picked likewise, first `{DEFAULT.external_pool}`.",
)
BALANCER_POOL = Option(
    "balancerPool",
    NETWORK,
    "",
    "Addresses of balancers; on loopback, 127.x. Empty: picked likewise, first "
    f"`{DEFAULT.balancer_pool}`.",
)
BALANCER_POOL_V6 = Option(
    "balancerPoolV6",
    NETWORK,
    DEFAULT.balancer_pool_v6,
    "IPv6 addresses of balancers. Loopback has one: balancers share it, on different ports.",
)
BOOT = Option("bootSeconds", NUMBER, 0.0, "How long an instance is pending before it runs.")
SETTLE = Option("settleSeconds", NUMBER, 0.0, "How long a balancer is busy after each change.")
LAG = Option("lagSeconds", NUMBER, 0.0, "How old an answer may be that need not be fresh.")
LATENCY = Option("latencySeconds", NUMBER, 0.0, "How long each request takes at least.")
RATE = Option("requestsPerSecond", NUMBER, 0.0, "Requests above it are throttled; 0: no limit.")
NETWORK_KIND = Option(
    "network",
    one_of(*Network),
    Network.LOOPBACK.value,
    "Where balancers and instances carry real traffic: on addresses of this machine, with the "
    "instances in network namespaces, or nowhere.",
)
HEALTH_INTERVAL = Option("healthSeconds", NUMBER, 1.0, "How often members are checked.")
VOLUME_FOLDER = Option(
    "volumeFolder", TEXT, "", "Folder with the data of volumes; empty: volumes have no data."
)
VOLUME_KIND = Option(
    "volumeKind",
    one_of(*DiskKind),
    DiskKind.AUTO.value,
    "What a volume is on this machine: a loop device, a directory, or loop devices where root "
    "and the kernel allow them (`auto`).",
)
BURST = Option("burst", integer(1, 100_000), PLAIN.burst, "Requests taken at once.")

FILE = Options(
    ENDPOINT,
    ZONE,
    STATE,
    REGION,
    ZONES,
    INTERNAL_POOL,
    EXTERNAL_POOL,
    BALANCER_POOL,
    BALANCER_POOL_V6,
    BOOT,
    SETTLE,
    LAG,
    LATENCY,
    RATE,
    BURST,
    NETWORK_KIND,
    HEALTH_INTERVAL,
    VOLUME_FOLDER,
    VOLUME_KIND,
)

NAMESPACE = "local.pileus/"
PROXY_PROTOCOL = Option(
    f"{NAMESPACE}proxy-protocol",
    one_of(*ProxyHeader),
    ProxyHeader.NONE.value,
    "Header by which members learn the client's address (TCP).",
)
DRAIN = Option(
    f"{NAMESPACE}drain-seconds",
    integer(0, 3600),
    30,
    "How long connections to a removed member may go on.",
)
ANNOTATIONS = Options(PROXY_PROTOCOL, DRAIN, namespace=NAMESPACE)


def read_file(text: str | None, where: str) -> Values:
    """Returns the values of a YAML or JSON configuration file; None: defaults.

    Raises `Misconfigured` with the file and every mistake in it.
    """
    if text is None or not text.strip():
        return Values({})
    try:
        document: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Misconfigured(f"{where} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, Mapping):
        raise Misconfigured(f"{where} must hold keys and values, such as `zones: [a, b]`")
    given = cast("Mapping[object, object]", document)
    parsed = FILE.parse({str(key): value for key, value in given.items()})
    if parsed.problems:
        raise Misconfigured(f"{where}: {'; '.join(parsed.problems)}")
    if not parsed.values[ZONES]:
        raise Misconfigured(f"{where}: zones must name at least one")
    return parsed.values


def given_pools(values: Values) -> Pools:
    """Returns the pools that the file names; empty: those that it does not name."""
    return Pools(
        internal=values[INTERNAL_POOL],
        external=values[EXTERNAL_POOL],
        balancers=values[BALANCER_POOL],
    )


def settings_of(values: Values, pools: Pools) -> Settings:
    return Settings(
        region=values[REGION],
        zones=values[ZONES],
        internal_pool=pools.internal,
        external_pool=pools.external,
        balancer_pool=pools.balancers,
        balancer_pool_v6=values[BALANCER_POOL_V6],
        boot_seconds=values[BOOT],
        settle_seconds=values[SETTLE],
    )


def disks_of(values: Values) -> Disks | None:
    """Returns the data of volumes; None: they have none. Raises `Misconfigured`."""
    folder = values[VOLUME_FOLDER]
    return Disks.open(Path(folder), DiskKind(values[VOLUME_KIND])) if folder else None


def behaviour_of(values: Values) -> Behaviour:
    return Behaviour(
        lag_seconds=values[LAG],
        latency_seconds=values[LATENCY],
        requests_per_second=values[RATE],
        burst=values[BURST],
    )


def endpoint_of(named: str, environ: Mapping[str, str], uid: Callable[[], int] = os.getuid) -> Path:
    """The socket to use: the given one, or the default that all commands share."""
    if given := named or environ.get(ENDPOINT_VARIABLE, ""):
        return Path(given)
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "pileus" / "local.sock"
    return Path(environ.get("TMPDIR") or "/tmp") / f"pileus-{uid()}" / "local.sock"  # noqa: S108
