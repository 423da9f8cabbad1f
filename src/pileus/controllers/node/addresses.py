"""The desired addresses of a node: the cloud's, with those the kubelet asks for first. Pure."""

from collections.abc import Iterable, Sequence
from typing import cast

from pileus.cloud.model import Address, AddressType
from pileus.kube.model.core_v1 import Node, NodeAddress
from pileus.objects.node_ips import PROVIDED_NODE_IP, ip_by_value, prefer_node_ips
from pileus.objects.nodes import ADDRESS_TYPES, addresses_of

IP_TYPES = frozenset({AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP})


def usable(reported: Iterable[Address]) -> tuple[tuple[NodeAddress, ...], tuple[str, ...]]:
    """Returns the valid addresses, each once, and a message about each invalid one."""
    addresses: dict[tuple[str, object], NodeAddress] = {}
    problems: list[str] = []
    for each in reported:
        problem = _problem(each.type, each.address)
        if problem:
            problems.append(problem)
        else:
            address = NodeAddress(type=str(each.type), address=each.address)
            addresses.setdefault(_identity(address), address)
    return tuple(addresses.values()), tuple(problems)


def is_of_unknown_type(address: Address) -> bool:
    """Whether Kubernetes does not define the type. Such an address is ignored, not invalid."""
    kind = cast("object", address.type)
    return isinstance(kind, str) and kind not in ADDRESS_TYPES


def desired_addresses(node: Node, reported: Sequence[NodeAddress]) -> tuple[NodeAddress, ...]:
    """Returns the addresses that the node should have; its own if the cloud reports none.

    Within a type, addresses that the node has keep their order and spelling, and new ones follow
    in the cloud's order: the first of a type is the node's main address and must not flip.
    An address that the kubelet asks for is first, and replaces the others of its type.

    Raises `NodeIpRefused`.
    """
    present = addresses_of(node)
    if not reported:
        return present
    return _with_node_ip_first(node, _steady(_with_host_name(reported, present), present))


def check_node_ip(node: Node, reported: Sequence[NodeAddress]) -> None:
    """Raises `NodeIpRefused` if the kubelet asks for an address that the cloud does not report."""
    _with_node_ip_first(node, reported)


def same_addresses(one: Sequence[NodeAddress], other: Sequence[NodeAddress]) -> bool:
    """Whether each type has the same addresses in the same order, however types are mixed."""
    return _by_type(one) == _by_type(other)


def _with_host_name(
    reported: Sequence[NodeAddress], present: Sequence[NodeAddress]
) -> tuple[NodeAddress, ...]:
    if any(each.type == AddressType.HOSTNAME for each in reported):
        return tuple(reported)
    return (*reported, *(each for each in present if each.type == AddressType.HOSTNAME))


def _steady(
    desired: Sequence[NodeAddress], present: Sequence[NodeAddress]
) -> tuple[NodeAddress, ...]:
    """Returns each address once; within a type, present ones first, in their present order."""
    known = {_identity(each): each for each in present}
    distinct = tuple(
        {key: known.get(key, each) for each in desired for key in [_identity(each)]}.values()
    )
    rank = {key: n for n, key in enumerate(known)}
    by_type: dict[str, list[NodeAddress]] = {}
    for each in sorted(distinct, key=lambda each: rank.get(_identity(each), len(rank))):
        by_type.setdefault(each.type, []).append(each)
    lines = {name: iter(line) for name, line in by_type.items()}
    return tuple(next(lines[each.type]) for each in distinct)


def _with_node_ip_first(node: Node, addresses: Sequence[NodeAddress]) -> tuple[NodeAddress, ...]:
    text = (node.metadata.annotations or {}).get(PROVIDED_NODE_IP)
    return tuple(addresses) if text is None else prefer_node_ips(text, addresses)


def _by_type(addresses: Sequence[NodeAddress]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in addresses:
        found.setdefault(each.type, []).append(each.address)
    return found


def _identity(address: NodeAddress) -> tuple[str, object]:
    """Returns what identifies an address: of an IP address its value, however it is spelled."""
    ip = ip_by_value(address.address) if address.type in IP_TYPES else None
    return address.type, ip or address.address


def _problem(kind: object, text: object) -> str:
    """Returns what is invalid about an address. Providers may break their type annotations."""
    if not isinstance(kind, str) or kind not in ADDRESS_TYPES:
        return f"address type {kind!r} is not one of {', '.join(sorted(ADDRESS_TYPES))}"
    if not isinstance(text, str) or not text:
        return f"{kind} {text!r} is not an address"
    if kind in IP_TYPES and ip_by_value(text) is None:
        return f"{kind} {text!r} is not an IP address"
    return ""
