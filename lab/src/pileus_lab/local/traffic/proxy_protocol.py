"""The header of the PROXY protocol (versions 1 and 2), which tells a member the client's address.

https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt
"""

import struct
from dataclasses import dataclass
from ipaddress import ip_address

from pileus_lab.local.model.records import ProxyHeader

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
V1_START = b"PROXY "
V1_LONGEST = 107
_V2_STREAM = {4: 0x11, 6: 0x21}
_V2_PROXY = 0x21
_V2_LOCAL = 0x20


@dataclass(frozen=True, slots=True)
class Peers:
    """The two ends of a connection."""

    client: tuple[str, int]
    balancer: tuple[str, int]


def encode(version: ProxyHeader, peers: Peers) -> bytes:
    """Returns the header that the member gets first; empty if the setting is off."""
    if version is ProxyHeader.V1:
        return _encode_v1(peers)
    return _encode_v2(peers) if version is ProxyHeader.V2 else b""


def _encode_v1(peers: Peers) -> bytes:
    (client, client_port), (balancer, port) = peers.client, peers.balancer
    family = f"TCP{ip_address(client).version}"
    return f"PROXY {family} {client} {balancer} {client_port} {port}\r\n".encode()


def _encode_v2(peers: Peers) -> bytes:
    client, balancer = ip_address(peers.client[0]), ip_address(peers.balancer[0])
    ports = struct.pack("!HH", peers.client[1], peers.balancer[1])
    body = client.packed + balancer.packed + ports
    return SIGNATURE + struct.pack("!BBH", _V2_PROXY, _V2_STREAM[client.version], len(body)) + body


@dataclass(frozen=True, slots=True)
class Decoded:
    peers: Peers | None
    """None: a header without addresses, for example of a health check."""
    rest: bytes


def decode(data: bytes) -> Decoded | None:
    """Splits off the header. Returns None while it is incomplete.

    Raises `ValueError` if there is none or it is malformed.
    """
    if len(data) < len(SIGNATURE) and (SIGNATURE.startswith(data) or V1_START.startswith(data)):
        return None
    if data.startswith(SIGNATURE):
        return _decode_v2(data)
    if data.startswith(V1_START):
        return _decode_v1(data)
    raise ValueError("no PROXY header")


def _decode_v1(data: bytes) -> Decoded | None:
    line, end, rest = data.partition(b"\r\n")
    if not end:
        if len(data) > V1_LONGEST:
            raise ValueError("PROXY header without an end")
        return None
    words = line.decode("ascii").split(" ")
    if words[1:2] == ["UNKNOWN"]:
        return Decoded(None, rest)
    try:
        _, _, client, balancer, client_port, port = words
        peers = Peers((client, int(client_port)), (balancer, int(port)))
    except ValueError as error:
        raise ValueError(f"malformed PROXY header {line!r}") from error
    return Decoded(peers, rest)


def _decode_v2(data: bytes) -> Decoded | None:
    start = len(SIGNATURE) + 4
    if len(data) < start:
        return None
    command, family, length = struct.unpack_from("!BBH", data, len(SIGNATURE))
    body, rest = data[start : start + length], data[start + length :]
    if len(body) < length:
        return None
    if command == _V2_LOCAL:
        return Decoded(None, rest)
    size = {0x11: 4, 0x21: 16}.get(family)
    if size is None or length < 2 * size + 4:
        raise ValueError(f"PROXY header of unknown family {family:#x}")
    client, balancer = (str(ip_address(body[i * size : (i + 1) * size])) for i in range(2))
    client_port, port = struct.unpack_from("!HH", body, 2 * size)
    return Decoded(Peers((client, client_port), (balancer, port)), rest)
