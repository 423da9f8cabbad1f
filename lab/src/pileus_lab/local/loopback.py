"""The loopback addresses of the clouds on this machine: each cloud has pools of its own.

A cloud claims its pools while it runs: it binds a UDP port at the last address of each, which is
never assigned. The kernel refuses a second claim, and ends a claim with its process.
"""

import socket
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from ipaddress import ip_network

from pileus.cloud.errors import Misconfigured
from pileus_lab.local.model.records import Pools
from pileus_lab.local.model.state import State

CLAIM_PORT = 47090
NETWORKS = tuple(
    Pools(
        internal=f"127.{n}.0.0/16", balancers=f"127.{n + 1}.0.0/16", external=f"127.{n + 2}.0.0/16"
    )
    for n in (77, *range(200, 252, 3))
)
"""The pools that a cloud can pick; it takes the first ones that are free."""
KEPT = "loopback"
"""The key of the pools in the state."""


def kept_pools(state: State) -> Pools | None:
    """Returns the pools that the cloud with this state has to use; None: any.

    Objects without pools were created by a version that knew the first ones only.
    """
    if KEPT in state.pools:
        return state.pools[KEPT]
    return NETWORKS[0] if state.machines or state.balancers else None


@contextmanager
def claimed_pools(
    given: Pools, kept: Pools | None = None, choices: Iterable[Pools] = NETWORKS
) -> Generator[Pools]:
    """Yields pools that no other cloud on this machine uses while the block lasts.

    Pools that are empty in `given` are taken from `kept`, or from the first of `choices` that is
    free. Raises `Misconfigured` with the pool that is in use.
    """
    problem = ""
    for choice in choices if kept is None else (kept,):
        pools = filled(given, choice)
        with ExitStack() as claims:
            problem = _claim(pools.internal, claims) or _claim(pools.balancers, claims)
            if not problem:
                yield pools
                return
    raise Misconfigured(
        f"the addresses of the local cloud cannot be used ({problem}). Another local cloud or demo "
        "on this machine may use them: stop it, or set internalPool and balancerPool to other "
        "loopback networks in the file of --config"
    )


def filled(given: Pools, choice: Pools) -> Pools:
    return Pools(
        internal=given.internal or choice.internal,
        external=given.external or choice.external,
        balancers=given.balancers or choice.balancers,
    )


def last_address(pool: str) -> str:
    """Returns the last address of a pool, which is never assigned in pools of more than two."""
    return str(ip_network(pool)[-1])


def _claim(pool: str, claims: ExitStack) -> str:
    """Claims a pool until `claims` ends. Returns why it cannot.

    Addresses beyond loopback are assigned to this machine by the user, and are not claimed.
    """
    if not ip_network(pool).is_loopback:
        return ""
    claim = claims.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    try:
        claim.bind((last_address(pool), CLAIM_PORT))
    except OSError as error:
        return f"{pool}: {error.strerror}"
    return ""
