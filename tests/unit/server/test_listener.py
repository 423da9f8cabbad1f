"""The socket is open before anything is served, and a taken port says so."""

import socket

import pytest

from pileus.server.errors import CannotListen
from pileus.server.port import listen
from pileus.server.settings import ServingOptions


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_port_zero_means_not_to_listen():
    assert listen(ServingOptions(port=0)) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_taken_port_is_named_with_its_address(taken: int, address: str):
    with pytest.raises(
        CannotListen, match=rf"{address}\]?:{taken}: the port is in use; .* --secure-port"
    ):
        listen(ServingOptions(bind_address=address, port=taken))


def test_an_address_that_is_not_ours_is_named():
    with pytest.raises(
        CannotListen, match=r"192\.0\.2\.1:10258: no network interface has this address"
    ):
        listen(ServingOptions(bind_address="192.0.2.1"))


def test_what_is_no_address_is_named():
    with pytest.raises(CannotListen, match="--bind-address=localhost: not an IP address"):
        listen(ServingOptions(bind_address="localhost"))


def test_port_sharing_lets_two_listen():
    with socket.socket() as first:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]

        second = listen(
            ServingOptions(bind_address="127.0.0.1", port=port, permit_port_sharing=True)
        )

        assert second is not None
        with second:
            assert second.getsockname()[1] == port


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_the_unspecified_address_stands_for_both_ip_versions(address: str):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind(("127.0.0.1", 0))  # reserves the number; it does not listen
        port = probe.getsockname()[1]

        listener = listen(ServingOptions(bind_address=address, port=port, permit_port_sharing=True))

        assert listener is not None
        with listener:
            for loopback in ("127.0.0.1", "::1"):
                socket.create_connection((loopback, port), timeout=10).close()
