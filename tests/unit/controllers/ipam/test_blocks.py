"""Blocks of a range: found in turn, held by many, free when nobody holds them."""

from ipaddress import IPv4Network, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pileus.controllers.ipam.allocator import Blocks
from pileus.controllers.ipam.settings import Pool, sizes
from pileus.objects.ranges import parse_range
from tests.unit.controllers.ipam.asked import asked_for


def blocks(text: str, mask: int) -> Blocks:
    return Blocks(Pool(parse_range(text), mask))


def taken(from_: Blocks, holder: str = "n") -> str | None:
    found = from_.find()
    if found is None:
        return None
    from_.hold(found.range, holder)
    return str(found.range)


def test_blocks_are_given_in_turn_also_when_an_earlier_one_is_free_again():
    of = blocks("10.0.0.0/22", 24)

    assert [taken(of), taken(of)] == ["10.0.0.0/24", "10.0.1.0/24"]
    of.release(parse_range("10.0.0.0/24"), "n")
    assert [taken(of), taken(of), taken(of)] == ["10.0.2.0/24", "10.0.3.0/24", "10.0.0.0/24"]
    assert taken(of) is None


def test_what_is_held_already_is_passed_over_and_does_not_move_the_turn():
    of = blocks("10.0.0.0/22", 24)
    of.hold(parse_range("10.0.1.0/24"), "other")
    of.hold(parse_range("10.0.0.0/24"), "other")

    found = of.find()

    assert found is not None
    assert (str(found.range), found.tries) == ("10.0.2.0/24", 2)


@pytest.mark.parametrize(
    ("wanted", "used"),
    [
        ("10.0.0.0/23", 2),
        ("10.0.0.128/25", 1),
        ("10.0.0.0/8", 4),
        ("0.0.0.0/0", 4),
        ("10.0.3.255/32", 1),
        ("10.0.4.0/24", 0),
        ("9.0.0.0/24", 0),
        ("fd00::/64", 0),
        ("::a00:0/96", 0),
    ],
)
def test_a_range_of_another_size_holds_every_block_that_it_touches(wanted, used):
    of = blocks("10.0.0.0/22", 24)

    of.hold(parse_range(wanted), "odd")

    assert of.used == used
    of.release(parse_range(wanted), "odd")
    assert of.used == 0


def test_a_block_that_two_hold_is_free_when_both_have_let_go():
    of = blocks("10.0.0.0/24", 24)
    one = parse_range("10.0.0.0/24")

    assert of.hold(one, "a") == frozenset()
    assert of.hold(one, "b") == {"a"}
    of.release(one, "a")
    assert of.find() is None
    of.release(one, "b")
    assert of.find() is not None


def test_a_large_ipv6_range_is_cut_quickly():
    of = blocks("fd00::/48", 64)

    of.hold(parse_range("fd00::/49"), "half of it")
    of.hold(parse_range("fd00:0:0:9000::/52"), "a part of the rest")
    given_ = {taken(of) for _ in range(2000)}

    assert of.count == 65536
    assert of.used == 32768 + 4096 + 2000
    assert len(given_) == 2000
    assert "fd00:0:0:8000::/64" in given_


class Turns(RuleBasedStateMachine):
    """Blocks against the plainest model that there is: a set for each."""

    def __init__(self) -> None:
        super().__init__()
        self.of = blocks("10.0.0.0/28", 30)
        self.all = list(IPv4Network("10.0.0.0/28").subnets(new_prefix=30))
        self.held: dict[tuple[str, str], IPv4Network] = {}

    @rule(holder=st.sampled_from("abc"), first=st.integers(0, 15), mask=st.integers(28, 32))
    def hold(self, holder: str, first: int, mask: int) -> None:
        wanted = IPv4Network((f"10.0.0.{first}", mask), strict=False)
        others = {
            h for (h, _), each in self.held.items() if h != holder and self._meet(each, wanted)
        }

        found = self.of.hold(wanted, holder)

        assert found <= others
        self.held[holder, str(wanted)] = wanted

    @rule(holder=st.sampled_from("abc"))
    def let_go(self, holder: str) -> None:
        for key in [key for key in self.held if key[0] == holder]:
            self.of.release(self.held.pop(key), holder)

    @rule()
    def find(self) -> None:
        found = self.of.find()

        free = {each for each in self.all if not self._is_held(each)}
        assert (found is None) == (not free)
        assert found is None or found.range in free

    @invariant()
    def counts(self) -> None:
        assert self.of.used == sum(self._is_held(each) for each in self.all)

    def _is_held(self, block: IPv4Network) -> bool:
        return any(self._meet(each, block) for each in self.held.values())

    def _meet(self, one: IPv4Network, other: IPv4Network) -> bool:
        return any(block.overlaps(one) and block.overlaps(other) for block in self.all)


TestTurns = Turns.TestCase


DUAL = "10.0.0.0/16,fd00::/48"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (asked_for("10.0.0.0"), "--cluster-cidr: "),
        (asked_for("10.0.0.0/16,10.1.0.0/16"), "--cluster-cidr: both CIDRs are IPv4"),
        (asked_for(DUAL, mask_size=26), "--node-cidr-mask-size is for single-stack"),
        (
            asked_for("10.0.0.0/16", mask_size=26, mask_size_ipv4=26),
            "--node-cidr-mask-size cannot be combined with",
        ),
        (
            asked_for("10.0.0.0/16", mask_size_ipv6=64),
            "--node-cidr-mask-size-ipv6: --cluster-cidr has no IPv6 range",
        ),
        (
            asked_for("fd00::/48", mask_size_ipv4=24),
            "--node-cidr-mask-size-ipv4: --cluster-cidr has no IPv4 range",
        ),
        (asked_for("10.0.0.0/25"), "/24 do not fit into 10.0.0.0/25"),
        (asked_for("fd00::/40"), "node CIDR size is too big"),
        (asked_for("0.0.0.0/0", mask_size=30), "node CIDR size is too big"),
        (
            asked_for("10.0.0.0/16", mask_size=64),
            "--node-cidr-mask-size: an IPv4 prefix is at most 32 bits",
        ),
        (asked_for(DUAL, service_range="x"), "--service-cluster-ip-range: "),
        (
            asked_for("10.0.0.0/16", service_range="10.0.0.0/15"),
            "--service-cluster-ip-range: 10.0.0.0/15 leaves no node CIDR in 10.0.0.0/16",
        ),
        (
            asked_for("10.0.0.0/16", service_range="10.0.9.0/24", mask_size=16),
            "--service-cluster-ip-range: 10.0.9.0/24 leaves no node CIDR in 10.0.0.0/16",
        ),
        (asked_for(DUAL, allocator="CloudAllocator"), '"CloudAllocator" is not supported'),
        (asked_for(DUAL, allocator="IPAMFromCluster"), "RangeAllocator"),
    ],
)
def test_flags_that_make_no_sense_are_told_with_their_names(asked, told):
    (problem,) = (*asked.cluster.malformed(), *asked.malformed(), *asked.misfits())

    assert told in problem
    with pytest.raises(ValueError, match="."):
        sizes(asked)


@pytest.mark.parametrize(
    ("asked", "masks"),
    [
        (asked_for("10.0.0.0/16"), [24]),
        (asked_for("10.0.0.0/16", mask_size=26), [26]),
        (asked_for("10.0.0.0/24"), [24]),
        (asked_for("fd00::/48"), [64]),
        (asked_for("fd00::/56", mask_size=72), [72]),
        (asked_for(DUAL), [24, 64]),
        (asked_for("fd00::/48,10.0.0.0/16", mask_size_ipv4=25), [64, 25]),
    ],
)
def test_masks_are_the_usual_ones_unless_given(asked, masks):
    assert [pool.mask for pool in sizes(asked).pools] == masks


@given(st.integers(0, 2**16 - 1))
def test_every_block_lies_in_the_range_where_it_was_counted(place):
    of = blocks("fd00::/48", 64)

    block = of._at(place)

    assert isinstance(block, IPv6Network)
    assert block.subnet_of(IPv6Network("fd00::/48"))
    assert list(of._places(block)) == [place]
