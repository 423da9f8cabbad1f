"""Ranges as flags and nodes name them."""

import pytest

from pileus.objects.ranges import host_bit_warnings, is_within, parse_range, parse_ranges, touches


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("10.0.0.0/8,192.168.0.0/16", "both CIDRs are IPv4"),
        ("10.0.0.0/8,fd00::/16,fd01::/16", "3 CIDRs"),
        ("10.0.0.0/8,", '"" is not a CIDR'),
        ("10.0.0.0", '"10.0.0.0" is not a CIDR'),
        ("300.0.0.0/8", '"300.0.0.0/8" is not a CIDR'),
        ("fe80::1%eth0/64", "is not a CIDR"),
    ],
)
def test_a_cluster_range_that_is_none_is_told(text, told):
    with pytest.raises(ValueError, match=told):
        parse_ranges(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10.244.0.0/16", ["10.244.0.0/16"]),
        ("fd00::/48, 10.244.0.0/16", ["fd00::/48", "10.244.0.0/16"]),
    ],
)
def test_a_cluster_has_one_range_or_one_of_each_family(text, said):
    assert [str(each) for each in parse_ranges(text)] == said


def test_host_bits_are_masked_as_in_go_and_can_be_told():
    text = "10.244.7.9/16, fd00::1/48"

    assert [str(each) for each in parse_ranges(text)] == ["10.244.0.0/16", "fd00::/48"]
    fields = [each for _, each in host_bit_warnings("--cluster-cidr", text)]
    assert [one["given"] for one in fields] == ["10.244.7.9/16", "fd00::1/48"]
    assert [one["used"] for one in fields] == ["10.244.0.0/16", "fd00::/48"]
    assert not list(host_bit_warnings("--cluster-cidr", "10.244.0.0/16,fd00::/48"))
    assert not list(host_bit_warnings("--cluster-cidr", ""))


def test_leading_zeros_of_ipv4_addresses_are_decimal_as_in_go():
    assert str(parse_range("010.244.000.0/16")) == "10.244.0.0/16"
    assert not list(host_bit_warnings("--cluster-cidr", "010.244.000.0/16"))


def test_families_are_never_confused():
    everything = parse_ranges("0.0.0.0/0")

    assert is_within(parse_range("10.0.0.0/8"), everything)
    assert not is_within(parse_range("::/96"), everything)
    assert not touches(parse_range("::/96"), everything)
