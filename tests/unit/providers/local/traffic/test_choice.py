from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus_lab.local.traffic.desired import Backend
from pileus_lab.local.traffic.forwarding import Turns, is_allowed

ABC = [Backend(name, "127.0.0.1", 1) for name in "abc"]


@given(st.integers(1, 60))
def test_members_take_turns_fairly(connections: int):
    turns = Turns()

    served = Counter(
        turns.order(ABC, "127.0.0.1", now=0.0, sticky=None)[0].name for _ in range(connections)
    )

    counts = [served[name] for name in "abc"]
    assert max(counts) - min(counts) <= 1


def test_every_member_is_tried_before_a_client_is_refused():
    order = Turns().order(ABC, "127.0.0.1", now=0.0, sticky=None)

    assert sorted(one.name for one in order) == ["a", "b", "c"]


def test_a_client_stays_with_its_member_for_as_long_as_it_is_sticky():
    turns = Turns()
    first = turns.order(ABC, "::1", now=0.0, sticky=10)[0]
    turns.keep("::1", first, now=0.0, sticky=10)

    soon = [turns.order(ABC, "::1", now=9.9, sticky=10)[0] for _ in range(5)]
    late = {turns.order(ABC, "::1", now=10.0, sticky=10)[0] for _ in range(3)}

    assert soon == [first] * 5
    assert late == set(ABC)


def test_a_client_whose_member_is_gone_gets_another():
    turns = Turns()
    turns.keep("::1", ABC[0], now=0.0, sticky=10)

    assert turns.order(ABC[1:], "::1", now=1.0, sticky=10)[0] in ABC[1:]


def test_clients_are_forgotten_in_time():
    turns = Turns()
    for number in range(100):
        turns.keep(f"10.0.0.{number}", ABC[0], now=float(number), sticky=5)

    assert len(turns._kept) <= 5


def test_nobody_serves_where_there_is_no_member():
    assert Turns().order([], "::1", now=0.0, sticky=None) == []


@pytest.mark.parametrize(
    ("client", "sources", "allowed"),
    [
        ("127.0.0.1", (), True),
        ("127.0.0.1", ("10.0.0.0/8",), False),
        ("127.0.0.1", ("10.0.0.0/8", "127.0.0.0/8"), True),
        ("::1", ("0.0.0.0/0",), False),
        ("::1", ("::/0",), True),
    ],
)
def test_only_clients_in_the_source_ranges_are_allowed(
    client: str, sources: tuple[str, ...], allowed: bool
):
    assert is_allowed(client, sources) is allowed
