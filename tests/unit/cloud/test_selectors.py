"""Node selectors, roles of annotations, and what a change of an option does to a plan."""

from dataclasses import dataclass
from typing import Any

import pytest

from pileus.cloud.balancer import Balancer, BalancerState, Effect, Owner, Part, Wish
from pileus.cloud.model import NodeName, NodeRef
from pileus.cloud.on_change import as_declared, changed_options, original, without_effect
from pileus.cloud.options import (
    ADOPTS,
    CREATE_ONLY,
    FLAG,
    RECREATE,
    SELECTOR,
    SELECTS_MEMBERS,
    TEXT,
    Option,
    Options,
    meant_for,
)
from pileus.cloud.selectors import EVERY_NODE, combined, parse_selector, select

INTERNAL = Option("acme/internal", FLAG, False, "No public address.", RECREATE)
SUBNET = Option("acme/subnet", TEXT, "", "Subnet.", CREATE_ONLY)
SIZE = Option("acme/size", TEXT, "", "Size.")
NAMED = Option("acme/load-balancer-id", TEXT, "", "Existing one.", role=ADOPTS)
NODES = Option("acme/node-selector", SELECTOR, EVERY_NODE, "Members.", role=SELECTS_MEMBERS)
ANNOTATIONS = Options(INTERNAL, SUBNET, SIZE, NAMED, NODES, namespace="acme/")


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("pool=web", {"pool": "web"}, True),
        ("pool==web", {"pool": "web"}, True),
        ("pool=web", {"pool": "db"}, False),
        ("pool=web", {}, False),
        ("pool!=web", {}, True),
        ("pool!=web", {"pool": "web"}, False),
        ("gpu", {"gpu": ""}, True),
        ("!gpu", {"gpu": "yes"}, False),
        ("pool=web, example.com/zone!=b ,!spot", {"pool": "web", "example.com/zone": "a"}, True),
        ("pool=web,!spot", {"pool": "web", "spot": "1"}, False),
    ],
)
def test_a_selector_matches_as_kubectl_does(text: str, labels: dict[str, str], matches: bool):
    assert parse_selector(text).matches(labels) is matches


@pytest.mark.parametrize("text", ["=web", "pool=a b", "!pool=web", "pool in (a,b)", "-x"])
def test_what_is_no_selector_is_refused(text: str):
    with pytest.raises(ValueError, match="a node selector such as"):
        parse_selector(text)
    assert "must be a node selector" in ANNOTATIONS.problems({NODES.name: text})[0]


def test_an_empty_selector_that_is_written_is_told_from_none():
    assert parse_selector("") != EVERY_NODE
    assert combined([parse_selector("")]).is_given
    assert not combined([]).is_given
    assert parse_selector("").requirements == EVERY_NODE.requirements


def test_members_are_selected_by_labels():
    web = NodeRef(name=NodeName("a"), labels={"pool": "web"})
    members = frozenset({web, NodeRef(name=NodeName("b"))})

    assert select(members, parse_selector("pool=web")) == {web}
    assert select(members, EVERY_NODE) is members


def test_annotations_with_a_role_are_not_passed_to_the_provider():
    given = {NAMED.name: "lb-1", NODES.name: "pool=web", SIZE.name: "large", "other": "x"}

    assert meant_for(ANNOTATIONS, given) == {SIZE.name: "large"}


@dataclass(frozen=True)
class Line:
    effect: Effect = Effect.UPDATE
    summary: str = "balancer"
    part: Part = Part.WHOLE


def wish(**options: str) -> Wish:
    named = {f"acme/{name}": value for name, value in options.items()}
    return Wish(owner=Owner("c", "u"), spec=None, options=named)


def standing(options: Any) -> Balancer:
    return Balancer(id="lb", state=BalancerState.READY, options=options)


def test_a_changed_option_that_recreates_makes_a_replacement_of_the_plan():
    changed = changed_options(ANNOTATIONS, wish(internal="true"), standing({INTERNAL.name: "f"}))
    members = Line(summary="members", part=Part.MEMBERS)
    shown = as_declared((members, Line()), changed)

    assert [each.effect for each in shown] == [Effect.UPDATE, Effect.REPLACE]
    assert shown[1].summary == "balancer (recreated: acme/internal changed)"
    assert [original(each) for each in shown] == [members, Line()]


def test_a_provider_that_plans_the_replacement_itself_is_left_as_it_is():
    changed = changed_options(ANNOTATIONS, wish(internal="true"), standing({INTERNAL.name: "f"}))

    for own in ((Line(Effect.REPLACE),), (Line(Effect.DELETE), Line(Effect.CREATE))):
        assert as_declared(own, changed) == own


@pytest.mark.parametrize(
    ("options", "now"),
    [
        (None, {"internal": "true"}),
        ({}, {"internal": "true"}),
        ({INTERNAL.name: "true"}, {"internal": "T"}),
        ({SIZE.name: "small"}, {"size": "large"}),
    ],
)
def test_nothing_is_shown_for_options_that_are_unknown_equal_or_live(options: Any, now: Any):
    changed = changed_options(ANNOTATIONS, wish(**now), standing(options))

    assert as_declared((Line(),), changed) == (Line(),)
    assert without_effect(changed) == ()


def test_a_changed_option_that_is_only_used_at_creation_is_warned_of():
    changed = changed_options(ANNOTATIONS, wish(subnet="b"), standing({SUBNET.name: "a"}))

    assert as_declared((Line(),), changed) == (Line(),)
    (warning,) = without_effect(changed)
    assert warning.startswith("acme/subnet is only used when the load balancer is created")
