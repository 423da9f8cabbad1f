"""Two demos on one machine have addresses of their own."""

import ipaddress
import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from pileus_lab.demo.host import Block, Unusable, claimed_block, free_port

TRIED = range(240, 256)
"""High ones: a demo that someone runs on this machine takes the low ones."""


def test_demos_side_by_side_get_different_blocks_and_a_freed_one_is_given_again():
    with claimed_block(TRIED) as first:
        with claimed_block(TRIED) as second:
            assert first != second
        with claimed_block(TRIED) as third:
            assert third == second


def test_when_none_is_free_it_is_said():
    with (
        claimed_block(TRIED) as taken,
        pytest.raises(Unusable, match="no block of loopback addresses"),
        claimed_block([taken.number]),
    ):
        pass


def test_the_pools_of_all_blocks_are_apart():
    blocks = [Block(number) for number in (0, 1, 255)]
    pools = [
        ipaddress.ip_network(pool)
        for block in blocks
        for pool in (block.instances, block.balancers, block.external)
    ]

    assert not any(a.overlaps(b) for a in pools for b in pools if a is not b)
    assert all(pool.is_loopback for pool in pools)


@contextmanager
def taken_everywhere() -> Generator[int]:
    """A port that some other program listens on, on all addresses."""
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        yield other.getsockname()[1]


def test_a_port_that_is_taken_is_passed_over():
    with taken_everywhere() as taken:
        with taken_everywhere() as freed:
            pass

        assert free_port(Block(255), [taken, freed]) == freed


def test_when_every_port_is_taken_it_is_said():
    with taken_everywhere() as taken, pytest.raises(Unusable, match=f"from {taken} to {taken}"):
        free_port(Block(255), [taken])
