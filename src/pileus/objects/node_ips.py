"""The addresses that a kubelet requests with `--node-ip`, and their order on the node. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from pileus.cloud.errors import Misconfigured
from pileus.fix import one_line, quoted
from pileus.kube.model.core_v1 import NodeAddress

PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"
"""The annotation with which a kubelet started with `--node-ip` requests its addresses."""
PAIR = 2
KNOWN = 1024
"""Texts whose address is remembered: a pass over a new node compares its addresses often."""

Ip = IPv4Address | IPv6Address


class NodeIpRefused(Misconfigured):
    """The address that the kubelet requests cannot be used; the text says which and why."""


def parse_node_ips(text: str) -> tuple[Ip, ...]:
    """Returns what the annotation asks for: one address, or two of different families.

    Raises `NodeIpRefused` if it is anything else. Two addresses are separated by a comma.
    """
    found = [(part, ip_by_value(part)) for part in text.split(",")]
    for part, ip in found:
        if ip is None:
            raise NodeIpRefused(
                f"annotation {PROVIDED_NODE_IP}: {quoted(part)} is not an IP address"
            )
    ips = tuple(ip for _, ip in found if ip is not None)
    if len(ips) > PAIR or (len(ips) == PAIR and ips[0].version == ips[1].version):
        raise NodeIpRefused(
            f"annotation {PROVIDED_NODE_IP}: {quoted(text)} must be one IP address, "
            "or one IPv4 and one IPv6 address"
        )
    if len(ips) == PAIR and any(ip.is_unspecified for ip in ips):
        raise NodeIpRefused(
            f"annotation {PROVIDED_NODE_IP}: {quoted(text)} is a pair and must not contain "
            "0.0.0.0 or ::"
        )
    return ips


def prefer_node_ips(text: str, addresses: Sequence[NodeAddress]) -> tuple[NodeAddress, ...]:
    """Returns the addresses with those that the annotation's text asks for in front.

    They displace other addresses of their types; addresses of other types follow.
    Raises `NodeIpRefused` if the text does not parse, or one of its addresses is not there.
    """
    first: list[NodeAddress] = []
    for ip in parse_node_ips(text):
        matching = [each for each in addresses if ip_by_value(each.address) == ip]
        if not matching:
            reported = one_line(", ".join(each.address for each in addresses)) or "none"
            raise NodeIpRefused(
                f"the kubelet asks for {ip} (annotation {PROVIDED_NODE_IP}), "
                f"which is not among the addresses that the cloud reports: {reported}"
            )
        first.extend(matching)
    matched = {each.type for each in first}
    return (*first, *(each for each in addresses if each.type not in matched))


@lru_cache(KNOWN)
def ip_by_value(text: str) -> Ip | None:
    """Returns the address, or None; leading zeros in IPv4 are tolerated, as in Go."""
    if ":" not in text:
        text = ".".join(part.lstrip("0") or part[-1:] for part in text.split("."))
    if "%" in text:
        return None
    try:
        ip = ip_address(text)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip
