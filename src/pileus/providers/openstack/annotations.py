"""Annotations of Services that the OpenStack provider reads, with the names of the Go program.

Numbers and truth values that cannot be parsed count as not set, as in the Go program: scripts rely
on that. `ignored` reports them, so that the user sees a warning. Other mistakes are refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pileus.cloud.balancer import Notice
from pileus.cloud.errors import Misconfigured
from pileus.cloud.options import (
    ADOPTS,
    CREATE_ONLY,
    LIVE,
    NAMES,
    REPORTED,
    SELECTS_MEMBERS,
    TEXT,
    Kind,
    OnChange,
    Option,
    Options,
    Values,
    one_of,
)
from pileus.cloud.selectors import EVERY_NODE, KEPT, Selector, parse_selector
from pileus.fix import quoted

PREFIX = "loadbalancer.openstack.org/"
METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
PROXY_VERSIONS = {"true": "PROXY", "v1": "PROXY", "v2": "PROXYV2"}
"""Protocol of a pool, by the value of `proxy-protocol`."""
BARBICAN = re.compile(
    r"https?://[^/\s]+(?:/[^/\s]+)*/v1/(containers|secrets)/([0-9a-fA-F-]{32,36})/?"
)
"""A reference of a certificate: type and UUID."""


def _flag(text: str) -> bool | None:
    """Only these two spellings count, as in the Go program."""
    return {"true": True, "false": False}.get(text)


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _proxy(text: str) -> str | None:
    return PROXY_VERSIONS.get(text, "" if text in {"", "false"} else None)


LENIENT_FLAG: Kind[bool | None] = Kind("true or false", _flag)
LENIENT_NUMBER: Kind[int | None] = Kind("whole number", _number)
PROXY_VERSION: Kind[str | None] = Kind("true, false, v1 or v2", _proxy)
LENIENT = (LENIENT_FLAG, LENIENT_NUMBER, PROXY_VERSION)


@lru_cache(maxsize=KEPT)
def node_selector(text: str) -> Selector:
    """Returns the selector as the Go program reads it: `k=` means any value, as `k` does.

    Raises ValueError whose text completes: `x must be …`.
    """
    selector = parse_selector(text)
    return replace(
        selector,
        requirements=tuple(
            one if one.value or one.is_negative else replace(one, value=None)
            for one in selector.requirements
        ),
    )


GO_SELECTOR: Kind[Selector] = Kind("node selector", node_selector)
OPTIONAL_TEXT: Kind[str | None] = Kind("text", str)
"""None: not set. An empty annotation is set, and wins over the configuration."""
METHOD: Kind[str | None] = Kind(" or ".join(METHODS), one_of(*METHODS).parse, METHODS)


def _text(name: str, text: str, on_change: OnChange = LIVE) -> Option[str | None]:
    return Option(PREFIX + name, OPTIONAL_TEXT, None, text, on_change)


def _truth(name: str, text: str, on_change: OnChange = LIVE) -> Option[bool | None]:
    return Option(PREFIX + name, LENIENT_FLAG, None, text, on_change)


def _integer(name: str, text: str, on_change: OnChange = LIVE) -> Option[int | None]:
    return Option(PREFIX + name, LENIENT_NUMBER, None, text, on_change)


INTERNAL_NAME = "service.beta.kubernetes.io/openstack-internal-load-balancer"
SOURCE_RANGES_NAME = "service.beta.kubernetes.io/load-balancer-source-ranges"

INTERNAL: Option[bool | None] = Option(
    INTERNAL_NAME,
    LENIENT_FLAG,
    None,
    "No floating IP. Default: `internal-lb` of the configuration, which cannot be overridden if it "
    "is true.",
)
SOURCE_RANGES: Option[tuple[str, ...]] = Option(
    SOURCE_RANGES_NAME,
    NAMES,
    (),
    "CIDRs of clients that may connect, if `spec.loadBalancerSourceRanges` is empty.",
)
FLOATING_NETWORK_ID = _text(
    "floating-network-id",
    "External network of the floating IP. Default: the class, the configuration, or the first "
    "external network with IPv4, by ID.",
    CREATE_ONLY,
)
FLOATING_SUBNET = _text(
    "floating-subnet",
    "Subnet of the floating IP: name, glob or `~expression`; `!` negates.",
    CREATE_ONLY,
)
FLOATING_SUBNET_ID = _text("floating-subnet-id", "Subnet of the floating IP, by ID.", CREATE_ONLY)
FLOATING_SUBNET_TAGS = _text(
    "floating-subnet-tags",
    "Tags of the subnet of the floating IP, comma-separated, at most 1,000 characters; `&` all of "
    "them, `!` negates.",
    CREATE_ONLY,
)
CLASS = _text("class", "Name of a `[LoadBalancerClass]` of the configuration.", CREATE_ONLY)
SUBNET_ID = _text(
    "subnet-id", "Subnet of the VIP. Default: the class or the configuration.", CREATE_ONLY
)
NETWORK_ID = _text(
    "network-id", "Network of the VIP. Default: the class or the configuration.", CREATE_ONLY
)
MEMBER_SUBNET_ID = _text("member-subnet-id", "Subnet of members that are added from now on.")
PORT_ID = _text(
    "port-id",
    "Existing port that becomes the VIP. The namespace must be in `--trusted-namespaces`.",
    CREATE_ONLY,
)
CONNECTION_LIMIT = _integer("connection-limit", "Connections per port, at most; -1: no limit.")
KEEP_FLOATING_IP = _truth("keep-floatingip", "Keep the floating IP when the Service is deleted.")
PROXY_PROTOCOL: Option[str | None] = Option(
    PREFIX + "proxy-protocol",
    PROXY_VERSION,
    None,
    "Send the PROXY protocol to members: `true` and `v1` version 1, `v2` version 2. A change "
    "replaces the pools.",
)
X_FORWARDED_FOR = _truth(
    "x-forwarded-for",
    "Listen for HTTP and add the header X-Forwarded-For. Cannot be combined with proxy-protocol. A "
    "change replaces the listeners.",
)
LB_METHOD: Option[str | None] = Option(
    PREFIX + "lb-method", METHOD, None, "Distribution of connections to members."
)
TIMEOUT_CLIENT_DATA = _integer("timeout-client-data", "Inactivity of clients, in milliseconds.")
TIMEOUT_MEMBER_CONNECT = _integer(
    "timeout-member-connect", "Time to connect to a member, in milliseconds."
)
TIMEOUT_MEMBER_DATA = _integer("timeout-member-data", "Inactivity of members, in milliseconds.")
TIMEOUT_TCP_INSPECT = _integer(
    "timeout-tcp-inspect", "Time to wait for more TCP packets to inspect, in milliseconds."
)
ENABLE_HEALTH_MONITOR = _truth(
    "enable-health-monitor", "Check members. Default: `create-monitor` of the configuration."
)
HEALTH_MONITOR_DELAY = _integer("health-monitor-delay", "Seconds between two checks of a member.")
HEALTH_MONITOR_TIMEOUT = _integer("health-monitor-timeout", "Seconds that a check may take.")
HEALTH_MONITOR_MAX_RETRIES = _integer(
    "health-monitor-max-retries", "Successful checks until a member is healthy, 1 to 10."
)
HEALTH_MONITOR_MAX_RETRIES_DOWN = _integer(
    "health-monitor-max-retries-down", "Failed checks until a member is unhealthy, 1 to 10."
)
FLAVOR_ID = _text("flavor-id", "Flavor of Octavia.", CREATE_ONLY)
AVAILABILITY_ZONE = _text("availability-zone", "Availability zone of Octavia.", CREATE_ONLY)
TLS_CONTAINER_REF = _text(
    "default-tls-container-ref",
    "Barbican reference of a certificate, `https://HOST/v1/containers/UUID` or `…/secrets/UUID`: "
    "the listeners terminate TLS.",
)
LOAD_BALANCER_ID: Option[str] = Option(
    PREFIX + "load-balancer-id",
    TEXT,
    "",
    "ID of an existing load balancer that the Service uses, also together with other Services of "
    "its namespace. Others need a proof, or `--trusted-namespaces`. Written by the manager if it "
    "is not set.",
    role=ADOPTS,
)
LOAD_BALANCER_ADDRESS: Option[str] = Option(
    PREFIX + "load-balancer-address",
    TEXT,
    "",
    "Floating IP, or VIP if there is none. Written by the manager.",
    role=REPORTED,
)
HOSTNAME = _text("hostname", "Host name to publish instead of the address.")
NODE_SELECTOR = Option(
    PREFIX + "node-selector",
    GO_SELECTOR,
    EVERY_NODE,
    "Labels of nodes that become members: `k=v,k2`; `k=` is any value, and an empty text every "
    "node. Default: the configuration.",
    role=SELECTS_MEMBERS,
)

OPTIONS: tuple[Option[Any], ...] = (
    INTERNAL,
    SOURCE_RANGES,
    FLOATING_NETWORK_ID,
    FLOATING_SUBNET,
    FLOATING_SUBNET_ID,
    FLOATING_SUBNET_TAGS,
    CLASS,
    SUBNET_ID,
    NETWORK_ID,
    MEMBER_SUBNET_ID,
    PORT_ID,
    CONNECTION_LIMIT,
    KEEP_FLOATING_IP,
    PROXY_PROTOCOL,
    X_FORWARDED_FOR,
    LB_METHOD,
    TIMEOUT_CLIENT_DATA,
    TIMEOUT_MEMBER_CONNECT,
    TIMEOUT_MEMBER_DATA,
    TIMEOUT_TCP_INSPECT,
    ENABLE_HEALTH_MONITOR,
    HEALTH_MONITOR_DELAY,
    HEALTH_MONITOR_TIMEOUT,
    HEALTH_MONITOR_MAX_RETRIES,
    HEALTH_MONITOR_MAX_RETRIES_DOWN,
    FLAVOR_ID,
    AVAILABILITY_ZONE,
    TLS_CONTAINER_REF,
    LOAD_BALANCER_ID,
    LOAD_BALANCER_ADDRESS,
    HOSTNAME,
    NODE_SELECTOR,
)
ANNOTATIONS = Options(*OPTIONS, namespace=(PREFIX, INTERNAL_NAME, SOURCE_RANGES_NAME))


def read(given: Mapping[str, str], service: str = "") -> Values:
    """Returns the values of a Service, `NAMESPACE/NAME`.

    Raises Misconfigured with every mistake.
    """
    values = ANNOTATIONS.read(given)
    if values[X_FORWARDED_FOR] and values[PROXY_PROTOCOL]:
        raise Misconfigured(
            f"annotations {X_FORWARDED_FOR.name} and {PROXY_PROTOCOL.name} cannot be combined. "
            f"Fix: {_removal(X_FORWARDED_FOR, service)}"
        )
    return values


def _removal(option: Option[Any], service: str) -> str:
    namespace, _, name = service.rpartition("/")
    namespace, name = namespace or "NAMESPACE", name or "NAME"
    return f"kubectl annotate service {name} --namespace={namespace} {option.name}-"


def ignored(given: Mapping[str, str], service: str = "") -> tuple[Notice, ...]:
    """Returns a warning for each value that could not be parsed, and so has no effect."""
    return tuple(_ignored(given, service))


def _ignored(given: Mapping[str, str], service: str) -> Iterator[Notice]:
    for option in OPTIONS:
        text = given.get(option.name)
        if text and option.kind in LENIENT and option.kind.parse(text) is None:
            yield Notice(
                "LoadBalancerAnnotationIgnored",
                f"annotation {option.name}: {quoted(text)} is not {option.kind.name}: the default "
                f"is used. Fix: {_removal(option, service)}",
                is_warning=True,
            )
