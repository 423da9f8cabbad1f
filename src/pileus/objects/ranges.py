"""Ranges of addresses (CIDRs) in flags, nodes and Services. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from pileus.fix import one_line, quoted
from pileus.kube.model.core_v1 import Node, Service
from pileus.objects.node_ips import ip_by_value

Range = IPv4Network | IPv6Network
MOST = 2
"""The largest number of ranges of a cluster: one of each address family."""
LONGEST = 100
"""Characters of a text that a message quotes."""
KNOWN = 16_384
"""Size of the cache: the ranges of all nodes are parsed in every pass."""


@lru_cache(KNOWN)
def parse_range(text: str) -> Range:
    """Returns a CIDR as Go parses it: the prefix length is required, host bits are ignored.

    IPv4 addresses may have leading zeros and are decimal. Raises ValueError, which quotes the text.
    """
    address, _, length = text.partition("/")
    if not (length.isascii() and length.isdigit()) or "%" in address:
        raise ValueError(f"{quoted(text)} is not a CIDR such as 10.244.0.0/16 or fd00::/48")
    with suppress(ValueError):
        return ip_network(text, strict=False)
    try:
        return ip_network(f"{_decimal(address)}/{length}", strict=False)
    except ValueError as error:
        raise ValueError(f"{quoted(text)} is not a CIDR: {one_line(str(error))}") from None


def wrong_with_range(text: str) -> str:
    """Returns why the text is not a CIDR, with the fix if one is known."""
    try:
        host = ip_address(text.partition("%")[0])
    except ValueError:
        return f"{quoted(text, LONGEST)} is not a CIDR such as 192.0.2.0/24"
    whole = f"{host}/{host.max_prefixlen}"
    return f"{quoted(text)} has no prefix length; write {whole} for this one address"


def parse_ranges(text: str) -> tuple[Range, ...]:
    """Returns the CIDRs of a flag: one, or a comma-separated pair of different families.

    Host bits are ignored, as in Go. Raises ValueError, with the fix, if one is not a CIDR.
    """
    ranges = tuple(parse_range(each.strip()) for each in text.split(","))
    if len(ranges) > MOST:
        raise ValueError(f"{len(ranges)} CIDRs, but at most one of each family is possible")
    if len({each.version for each in ranges}) < len(ranges):
        raise ValueError(f"both CIDRs are IPv{ranges[0].version}; one of each family is possible")
    return ranges


def host_bit_warnings(flag: str, text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields a warning for each CIDR of a flag that has host bits set: probably a typo."""
    for each in (one.strip() for one in text.split(",") if text):
        try:
            used = parse_range(each)
        except ValueError:
            continue
        if ip_address(_decimal(each.partition("/")[0])) != used.network_address:
            yield (
                "Ignoring the host bits of a CIDR",
                {"flag": flag, "given": each, "used": str(used)},
            )


def unread_warnings(problems: Iterable[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yields warnings about flags that are wrong, and that no controller reads so far."""
    for each in problems:
        yield "Ignoring an invalid flag unless a controller reads it", {"why": each}


def _decimal(address: str) -> str:
    """Returns an IPv4 address without leading zeros, and other text as it is."""
    ip = None if ":" in address else ip_by_value(address)
    return address if ip is None else str(ip)


def is_within(inner: Range, outer: Iterable[Range]) -> bool:
    """Returns whether one of `outer` contains all of `inner`."""
    first, last = inner.network_address, inner.broadcast_address
    return any(inner.version == each.version and first in each and last in each for each in outer)


def touches(one: Range, others: Iterable[Range]) -> bool:
    """Returns whether the first or the last address of `one` is in one of `others`."""
    first, last = one.network_address, one.broadcast_address
    return any(one.version == each.version and (first in each or last in each) for each in others)


def pod_ranges_of(node: Node) -> tuple[str, ...]:
    """Returns the pod ranges of the node, as they are written in its spec."""
    spec = node.spec
    if spec is None:
        return ()
    return spec.pod_cidrs or ((spec.pod_cidr,) if spec.pod_cidr else ())


SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


def source_range_texts(service: Service) -> tuple[str, tuple[str, ...]]:
    """Returns the field or annotation with the allowed source ranges, and the ranges as written.

    That is the field of the spec, or the annotation if the field is empty. Empty: all sources.
    """
    field = (service.spec and service.spec.load_balancer_source_ranges) or ()
    if field:
        return "spec.loadBalancerSourceRanges", tuple(text.strip() for text in field)
    text = ((service.metadata.annotations or {}).get(SOURCE_RANGES) or "").strip()
    parts = text.split(",") if text else ()
    return f"annotation {SOURCE_RANGES}", tuple(part.strip() for part in parts)
