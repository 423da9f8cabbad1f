"""Addresses of a node: pure functions of its server, its ports and `[Networking]`.

The order is that of the Go cloud-controller-manager, because the first address of a kind is the one
that is used:

1. fixed addresses of ports that are ACTIVE, by ID of the port: InternalIP
2. `accessIPv4` and `accessIPv6` of the server: ExternalIP
3. `hostname` in the metadata of the server: Hostname
4. addresses that Nova reports, with those of sub-ports of trunks, by name of their network:
   floating ones and those in `public-network-name` are ExternalIP, others InternalIP

An address in `public-network-name` is no InternalIP as well. If `internal-network-name` is set,
fixed addresses in all other networks are left out. `address-sort-order` then sorts what there is.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from pileus.cloud.errors import Misconfigured
from pileus.cloud.model import Address, AddressType
from pileus.dataclass import dataclass
from pileus.fix import one_line, quoted
from pileus.providers.openstack.config import Networking
from pileus.providers.openstack.neutron import Port
from pileus.providers.openstack.nova import NetworkAddress, Server
from pileus.suggest import did_you_mean
from pileus.telemetry.log import Log

log = Log(__name__)

ACTIVE = "ACTIVE"
FLOATING = "floating"
HOSTNAME = "hostname"
LONGEST_LABEL = 63
_NO_LABEL = re.compile(r"[^-A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True)
class SubPortAddress:
    """An address of a sub-port of a trunk. Nova does not know it."""

    network: str
    """Name of the network."""
    address: str


@dataclass(frozen=True, slots=True)
class AddressRules:
    """`[Networking]`, checked once."""

    networking: Networking
    order: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, networking: Networking) -> "AddressRules":
        return cls(networking, tuple(_sort_order(networking.address_sort_order)))

    def addresses(
        self, server: Server, ports: Sequence[Port], sub_ports: Iterable[SubPortAddress] = ()
    ) -> tuple[Address, ...]:
        """Returns the addresses of the server's node.

        Raises `Misconfigured` if the server has fixed addresses and `internal-network-name` leaves
        none of them.
        """
        found = dict.fromkeys(self._first(server, ports))
        reported = _by_network(server, sub_ports)
        for network, address in reported:
            kind = self._kind(network, address)
            if address.type != FLOATING and kind is not AddressType.INTERNAL_IP:
                for other in AddressType:
                    found.pop(Address(other, address.addr), None)
            if kind is not None and self._is_allowed(address.addr):
                found.setdefault(Address(kind, address.addr))
        self._check_networks(server, reported)
        return self._sorted(tuple(found))

    def _first(self, server: Server, ports: Sequence[Port]) -> Iterator[Address]:
        for port in sorted(ports, key=lambda one: one.id):
            for fixed in port.fixed_ips if port.status == ACTIVE else ():
                if self._is_allowed(fixed.ip_address):
                    yield Address(AddressType.INTERNAL_IP, fixed.ip_address)
        for access in (server.access_ipv4, server.access_ipv6):
            if access and self._is_allowed(access):
                yield Address(AddressType.EXTERNAL_IP, access)
        if server.metadata.get(HOSTNAME):
            yield Address(AddressType.HOSTNAME, server.metadata[HOSTNAME])

    def _kind(self, network: str, address: NetworkAddress) -> AddressType | None:
        """Returns the kind of address that the node gets; None: it does not get it."""
        if address.type == FLOATING or network in self.networking.public_network_name:
            return AddressType.EXTERNAL_IP
        internal = self.networking.internal_network_name
        return AddressType.INTERNAL_IP if not internal or network in internal else None

    def _is_allowed(self, address: str) -> bool:
        return not self.networking.ipv6_support_disabled or ":" not in address

    def _check_networks(
        self, server: Server, reported: Sequence[tuple[str, NetworkAddress]]
    ) -> None:
        fixed = [each for each in reported if each[1].type != FLOATING]
        if not fixed or any(self._kind(*each) is not None for each in fixed):
            return
        names = sorted({one_line(network) for network, _ in fixed})
        asked = self.networking.internal_network_name
        hints = (did_you_mean(name, names) for name in asked)
        raise Misconfigured(
            f"[Networking] internal-network-name: server {server.id} {quoted(server.name)} has no "
            f"address in {', '.join(asked)}{next(filter(None, hints), '')}; it is in "
            f"{', '.join(names)}. Fix: name one of its networks in cloud.conf"
        )

    def _sorted(self, addresses: tuple[Address, ...]) -> tuple[Address, ...]:
        return tuple(sorted(addresses, key=self._rank)) if self.order else addresses

    def _rank(self, address: Address) -> tuple[int, int]:
        """Addresses of one CIDR are in ascending order; those of none stay as they are, last."""
        try:
            value = ip_address(address.address)
        except ValueError:
            return len(self.order), 0
        for place, network in enumerate(self.order):
            if value in network:
                return place, int(value)
        return len(self.order), 0


def _by_network(
    server: Server, sub_ports: Iterable[SubPortAddress]
) -> tuple[tuple[str, NetworkAddress], ...]:
    """Returns the addresses that Nova reports and those of sub-ports, by name of their network."""
    networks = {name: list(addresses) for name, addresses in server.addresses.items()}
    for one in sub_ports:
        networks.setdefault(one.network, []).append(NetworkAddress(addr=one.address))
    return tuple((name, address) for name in sorted(networks) for address in networks[name])


def _sort_order(text: str) -> Iterator[IPv4Network | IPv6Network]:
    for item in filter(None, map(str.strip, text.split(","))):
        try:
            # Without a prefix length, as in Go, it is not a CIDR.
            yield ip_network(item if "/" in item else f"{item}/", strict=False)
        except ValueError as error:
            log.warning("Ignoring invalid CIDR of address-sort-order", cidr=item, error=str(error))


def label_value(text: str) -> str:
    """Returns the text as the value of a label: characters that labels cannot have become `-`."""
    return _NO_LABEL.sub("-", text).strip("-_.")[:LONGEST_LABEL].rstrip("-_.")
