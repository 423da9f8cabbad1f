"""What a wish's fingerprint depends on, and what it does not."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import BalancerSpec, HealthCheck, Listener, Owner, Transport, Wish
from pileus.cloud.model import Address, AddressType, NodeName, NodeRef
from pileus.cloud.selectors import parse_selector

INTERNAL, EXTERNAL = AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP


def node(name: str, provider_id: str = "", **more: Any) -> NodeRef:
    return NodeRef(name=NodeName(name), provider_id=provider_id or f"acme://{name}", **more)


SPEC = BalancerSpec(
    listeners=frozenset({
        Listener(port=80, node_port=30080, name="http"),
        Listener(port=443, node_port=30443),
    }),
    members=frozenset({node("a"), node("b")}),
    source_ranges=frozenset({"10.0.0.0/8", "2001:db8::/32"}),
    families=("IPv4", "IPv6"),
    requested_address="2001:db8::1",
)
WISH = Wish(owner=Owner("c", "u"), spec=SPEC, name="web", options={"a/x": "1", "a/y": "2"})


def fingerprint(**changes: Any) -> str:
    frozen = {k: frozenset(v) if isinstance(v, set) else v for k, v in changes.items()}
    return replace(WISH, spec=replace(SPEC, **frozen)).fingerprint


def test_it_is_the_same_on_every_machine_and_in_every_release():
    assert WISH.fingerprint == "011932a6564ed5a2"
    assert Wish(owner=WISH.owner, spec=None).fingerprint == "78a6edcaadc29d43"


@pytest.mark.real_time
@pytest.mark.parametrize("seed", ["1", "2"])
def test_it_does_not_depend_on_the_seed_of_hashes(seed: str):
    source = "from tests.unit.cloud.test_fingerprint import WISH; print(WISH.fingerprint)"
    told = subprocess.run(
        [sys.executable, "-c", source],
        env={"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout.strip() == WISH.fingerprint


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(replace(WISH, options={"a/y": "2", "a/x": "1"}), id="order of options"),
        pytest.param(replace(WISH, owner=Owner("c", "another")), id="owner"),
        pytest.param(replace(WISH, adopts="lb-7"), id="adoption"),
    ],
)
def test_what_is_not_wished_for_makes_no_difference(same: Wish):
    assert same.fingerprint == WISH.fingerprint


@pytest.mark.parametrize(
    "same",
    [
        pytest.param({"source_ranges": {"10.1.2.3/8", "2001:DB8:0::/32"}}, id="ranges"),
        pytest.param({"source_ranges": {" 10.0.0.0/8", "2001:db8::/32", "10.0.0.0/8"}}, id="twice"),
        pytest.param({"requested_address": "2001:0DB8::0001"}, id="address"),
        pytest.param(
            {"members": {node("b"), node("a", system_uuid="U", annotations={"x": "y"})}}, id="uuid"
        ),
        pytest.param(
            {"members": {node("b"), node("a", addresses=(Address(AddressType.HOSTNAME, "a"),))}},
            id="host names",
        ),
    ],
)
def test_trap_8_order_and_spelling_make_no_difference(same: dict[str, Any]):
    assert fingerprint(**same) == WISH.fingerprint


MEMBER = node("a", addresses=(Address(INTERNAL, "fd00::1"), Address(EXTERNAL, "192.0.2.1")))


def test_trap_8_the_spelling_of_a_members_address_makes_no_difference():
    respelt = node("a", addresses=(Address(INTERNAL, "FD00:0::1"), Address(EXTERNAL, "192.0.2.1")))

    assert fingerprint(members={respelt}) == fingerprint(members={MEMBER})


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(WISH, name="shop"), id="name"),
        pytest.param(replace(WISH, options={"a/x": "1"}), id="an option less"),
        pytest.param(replace(WISH, options={"a/x": "1", "a/y": "3"}), id="an option's value"),
        pytest.param(replace(WISH, spec=None), id="nothing"),
    ],
)
def test_what_is_wished_for_makes_a_difference(other: Wish):
    assert other.fingerprint != WISH.fingerprint


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"listeners": {Listener(port=80, node_port=30080, name="http")}}, id="port"),
        pytest.param({"members": {node("a")}}, id="member"),
        pytest.param({"members": {node("a"), node("b", provider_id="acme://2")}}, id="machine"),
        pytest.param({"members": {MEMBER, node("b")}}, id="a member's address"),
        pytest.param({"members": {node("b"), node("a", labels={"x": "y"})}}, id="a label"),
        pytest.param({"source_ranges": {"10.0.0.0/8"}}, id="ranges"),
        pytest.param({"source_ranges": {"nonsense"}}, id="a range that is none"),
        pytest.param({"sticky_seconds": 60}, id="affinity"),
        pytest.param({"families": ("IPv6", "IPv4")}, id="families"),
        pytest.param({"requested_address": ""}, id="address"),
        pytest.param({"health": HealthCheck(node_port=31000)}, id="health"),
        pytest.param({"health": HealthCheck(node_port=31000, path="/x")}, id="path"),
    ],
)
def test_each_part_of_the_spec_makes_a_difference(other: dict[str, Any]):
    assert fingerprint(**other) != WISH.fingerprint


LISTENERS = st.builds(
    Listener,
    port=st.integers(1, 3),
    node_port=st.integers(1, 3),
    transport=st.sampled_from(Transport),
    name=st.sampled_from(["", "x"]),
    application_protocol=st.sampled_from(["", "x"]),
)
SPECS = st.none() | st.builds(
    BalancerSpec,
    listeners=st.frozensets(LISTENERS, max_size=3),
    members=st.frozensets(st.sampled_from([node("a"), node("b"), node("ab")])),
    sticky_seconds=st.none() | st.just(1),
)
WISHES = st.builds(
    Wish,
    owner=st.just(WISH.owner),
    spec=SPECS,
    name=st.text(max_size=2),
    options=st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
)


@given(WISHES, WISHES)
def test_two_wishes_have_one_fingerprint_exactly_if_they_are_equal(one: Wish, other: Wish):
    assert (one.fingerprint == other.fingerprint) == (one == other)


# -- every field, however deep -------------------------------------------------------------------

WHOLE = Wish(
    owner=Owner("c", "u"),
    spec=BalancerSpec(
        listeners=frozenset({Listener(port=80, node_port=30080, name="http")}),
        members=frozenset({
            node(
                "a", system_uuid="1", addresses=(Address(INTERNAL, "10.0.0.1"),), labels={"l": "1"}
            )
        }),
        source_ranges=frozenset({"10.0.0.0/8"}),
        sticky_seconds=60,
        families=("IPv4",),
        requested_address="192.0.2.1",
        health=HealthCheck(node_port=32000),
    ),
    name="web",
    namespace="shop",
    service="web",
    published=frozenset({"192.0.2.1"}),
    options={"a/x": "1"},
    adopts="lb-1",
    selector=parse_selector("pool=web"),
)
"""A wish with every field set; a new field that may be None has to be set here too."""

OWN = "says whose it is, and is compared by itself"
FINDING = "helps to find the machine, and changes without a reason to touch the balancer"
SELECTED = "only says how the members were chosen"
CONTEXT = "is about the Service, for names and for adoption, and asks for nothing"
PERMISSION = "says what may be used and changed, and does not change what is desired"
NOT_IN_IT = {
    "namespace": CONTEXT,
    "service": CONTEXT,
    "published": CONTEXT,
    "may_use_foreign": PERMISSION,
    "only_members": PERMISSION,
    "owner.cluster": OWN,
    "owner.uid": OWN,
    "adopts": OWN,
    "selector.is_given": SELECTED,
    "selector.requirements": SELECTED,
    "selector.requirements.key": SELECTED,
    "selector.requirements.value": SELECTED,
    "selector.requirements.is_negative": SELECTED,
    "spec.listeners.position": CONTEXT,
    "spec.members.system_uuid": FINDING,
    "spec.members.annotations": FINDING,
}


def variants(value: Any) -> Iterator[tuple[str, Any]]:
    """The value with one thing changed in it, for each thing, and where that is."""
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            for path, other in variants(getattr(value, one.name)):
                yield f".{one.name}{path}", replace(value, **{one.name: other})
    elif isinstance(value, frozenset | tuple):
        kind: type[Any] = type(value)
        yield "", kind()
        for path, other in variants(next(iter(value))):
            yield path, kind([other])
    else:
        yield "", changed(value)


def changed(value: Any) -> object:
    match value:
        case Mapping():
            return {**value, "another": "1"}
        case Transport():
            return Transport.UDP
        case str():
            return f"{value}9"
        case int():
            return value + 1
        case _:
            raise AssertionError(f"set every field of WHOLE, and say how to change {value!r}")


CHANGED = [(path.removeprefix("."), other) for path, other in variants(WHOLE)]


@pytest.mark.parametrize(("path", "other"), CHANGED, ids=[path for path, _ in CHANGED])
def test_every_field_is_in_it_or_said_not_to_be(path: str, other: Wish):
    """A field added to the spec later would else escape quick checks."""
    assert other != WHOLE or path in NOT_IN_IT
    assert (other.fingerprint == WHOLE.fingerprint) is (path in NOT_IN_IT)


def test_what_is_said_not_to_be_in_it_exists():
    assert NOT_IN_IT.keys() <= {path for path, _ in CHANGED}
