import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus_lab.local.model.records import ProxyHeader
from pileus_lab.local.traffic.proxy_protocol import Decoded, Peers, decode, encode

PORTS = st.integers(1, 65535)
V4 = st.tuples(st.ip_addresses(v=4).map(str), PORTS)
V6 = st.tuples(st.ip_addresses(v=6).map(str), PORTS)
PEERS = st.builds(Peers, V4, V4) | st.builds(Peers, V6, V6)


@given(PEERS, st.sampled_from([ProxyHeader.V1, ProxyHeader.V2]), st.binary(max_size=40))
def test_a_header_is_read_as_it_was_written_wherever_it_is_cut(
    peers: Peers, version: ProxyHeader, rest: bytes
):
    header = encode(version, peers)

    assert decode(header + rest) == Decoded(peers, rest)
    assert all(decode(header[:cut]) is None for cut in range(len(header)))


def test_version_1_is_a_line_of_text():
    peers = Peers(("192.0.2.1", 4000), ("198.51.100.1", 80))

    assert encode(ProxyHeader.V1, peers) == b"PROXY TCP4 192.0.2.1 198.51.100.1 4000 80\r\n"


def test_version_2_is_as_the_specification_has_it():
    peers = Peers(("192.0.2.1", 4000), ("198.51.100.1", 80))

    assert encode(ProxyHeader.V2, peers) == bytes.fromhex(
        "0d0a0d0a000d0a515549540a 21 11 000c c0000201 c6336401 0fa0 0050"
    )


def test_no_header_is_nothing():
    assert encode(ProxyHeader.NONE, Peers(("::1", 1), ("::1", 2))) == b""


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"PROXY UNKNOWN\r\nrest", id="version 1"),
        pytest.param(b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00rest", id="version 2"),
    ],
)
def test_a_header_may_name_nobody(data: bytes):
    assert decode(data) == Decoded(None, b"rest")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n", id="none"),
        pytest.param(b"PROXY TCP4 1 2\r\n", id="too short"),
        pytest.param(b"PROXY TCP4 a b c d\r\n", id="no ports"),
        pytest.param(b"PROXY " + b"x" * 200, id="endless"),
        pytest.param(b"\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\x00", id="family"),
    ],
)
def test_nonsense_is_refused(data: bytes):
    with pytest.raises(ValueError, match="PROXY"):
        decode(data)
