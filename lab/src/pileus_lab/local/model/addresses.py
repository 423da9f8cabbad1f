"""Which address of a pool is given next."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network

from pileus.cloud.errors import QuotaExceeded, Rejected


def family_of(address: str) -> str:
    return f"IPv{ip_address(address).version}"


def give(pool: str, start: int, is_free: Callable[[str], bool]) -> str:
    """The first free address, from the `start`-th on: one that was freed rests for a while.

    Errors: `QuotaExceeded` if none is left.
    """
    network = ip_network(pool)
    first = int(network.network_address)
    size = min(network.num_addresses, 2**16)
    usable = range(1, size - 1) if size > 2 else range(size)  # noqa: PLR2004 -- network, broadcast
    for step in range(len(usable)):
        address = str(_same_kind(pool)(first + usable[(start + step) % len(usable)]))
        if is_free(address):
            return address
    raise QuotaExceeded(f"no free address is left in {pool}; delete something that has one")


def _same_kind(pool: str) -> Callable[[int], object]:
    return type(ip_network(pool).network_address)


def check_requested(address: str, pools: tuple[str, ...]) -> str:
    """The address in its usual spelling.

    Errors: `Rejected` if it is none, or not one of ours to give.
    """
    try:
        parsed = ip_address(address)
    except ValueError as error:
        raise Rejected(f'"{address}" is no IP address') from error
    for pool in map(ip_network, pools):
        if parsed.version == pool.version and parsed in pool:
            return str(parsed)
    raise Rejected(f"{parsed} is not in the balancers' pools {', '.join(pools)}")
