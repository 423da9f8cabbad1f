import socket
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from pileus_lab.demo.host import Unusable, free_port

SPARE = "127.99.255.255"


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

        assert free_port(SPARE, [taken, freed]) == freed


def test_when_every_port_is_taken_it_is_said():
    with taken_everywhere() as taken, pytest.raises(Unusable, match=f"from {taken} to {taken}"):
        free_port(SPARE, [taken])
