"""The listening socket, opened before anything else starts so that a taken port is found early."""

import errno
import socket
from ipaddress import IPv6Address, ip_address

from pileus.server.errors import CannotListen
from pileus.server.options import ServingOptions

BACKLOG = 128

_ADVICE = {
    errno.EADDRINUSE: "the port is in use; stop the other process, or use another --secure-port",
    errno.EADDRNOTAVAIL: "no network interface has this address; check --bind-address",
    errno.EACCES: "not permitted; use a --secure-port above 1023, or grant CAP_NET_BIND_SERVICE",
}


def listen(options: ServingOptions) -> socket.socket | None:
    """Return a socket that listens but is not served yet; None if the port is 0.

    The unspecified address, be it written `0.0.0.0` or `::`, stands for both IP versions.
    Errors: `CannotListen`, naming address and port.
    """
    if options.port == 0:
        return None
    try:
        return _open(options)
    except OSError as error:
        where = f"{_bracketed(options.bind_address)}:{options.port}"
        reason = _ADVICE.get(error.errno or 0, str(error))
        raise CannotListen(f"cannot listen on {where}: {reason}") from error
    except ValueError as error:
        raise CannotListen(f"--bind-address={options.bind_address}: not an IP address") from error


def _open(options: ServingOptions) -> socket.socket:
    address = ip_address(options.bind_address)
    dual = address.is_unspecified and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or isinstance(address, IPv6Address) else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if options.permit_port_sharing:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual)
        opened.bind(("::" if dual else options.bind_address, options.port))
        opened.listen(BACKLOG)
        opened.settimeout(0)
    except BaseException:
        opened.close()
        raise
    return opened


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
