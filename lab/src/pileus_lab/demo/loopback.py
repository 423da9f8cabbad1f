"""A block of loopback addresses that no other demo on this machine uses.

    127.90.K.0/25     instances
    127.90.K.128/25   balancers
    127.91.K.0/24     external addresses

A demo owns block K while it has a socket bound in it: nothing needs to be cleaned up, be it after
a kill -9.
"""

import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass

from pileus_lab.demo.folder import Unusable

BLOCKS = range(256)
FRONT_PORTS = range(8080, 8180)
NODE_PORTS = range(30080, 30180)
CLAIM_PORT = 47090


@dataclass(frozen=True, slots=True)
class Block:
    number: int

    @property
    def instances(self) -> str:
        return f"127.90.{self.number}.0/25"

    @property
    def balancers(self) -> str:
        return f"127.90.{self.number}.128/25"

    @property
    def external(self) -> str:
        return f"127.91.{self.number}.0/24"

    @property
    def spare(self) -> str:
        """An address that is given to nobody."""
        return f"127.90.{self.number}.127"


@contextmanager
def claimed_block(numbers: Iterable[int] = BLOCKS) -> Generator[Block]:
    """The first block that is free, ours until the end. Errors: `Unusable`."""
    problem: OSError | None = None
    for number in numbers:
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with claim:
            try:
                claim.bind((Block(number).spare, CLAIM_PORT))
            except OSError as error:
                problem = error
                continue
            yield Block(number)
            return
    raise Unusable(
        f"no block of loopback addresses below 127.90.0.0/16 can be had ({problem}); "
        "the demo needs addresses of 127.0.0.0/8 other than 127.0.0.1"
    )


def free_port(block: Block, wanted: Iterable[int]) -> int:
    """The first port that nobody has taken on all addresses, as many servers do.

    Errors: `Unusable`.
    """
    tried: list[int] = []
    for port in wanted:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((block.spare, port))
            except OSError:
                tried.append(port)
                continue
            return port
    raise Unusable(f"every port from {tried[0]} to {tried[-1]} is taken; stop one of their users")
