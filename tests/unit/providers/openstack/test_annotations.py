"""Annotations of Services: what counts, what is ignored with a warning, what is refused."""

import re
from dataclasses import dataclass

import pytest

from pileus.cloud.errors import Misconfigured
from pileus.cloud.options import ADOPTS, CREATE_ONLY, REPORTED, SELECTS_MEMBERS
from pileus.providers.openstack.annotations import (
    ANNOTATIONS,
    CONNECTION_LIMIT,
    INTERNAL,
    OPTIONS,
    PREFIX,
    PROXY_PROTOCOL,
    SUBNET_ID,
    ignored,
    read,
)


@dataclass(frozen=True)
class Given:
    """One annotation, and what the Go program makes of it."""

    name: str
    text: str
    value: object
    is_ignored: bool = False


@pytest.mark.parametrize(
    "given",
    [
        Given(INTERNAL.name, "true", value=True),
        Given(INTERNAL.name, "false", value=False),
        Given(INTERNAL.name, "True", value=None, is_ignored=True),
        Given(INTERNAL.name, "", value=None),
        Given(CONNECTION_LIMIT.name, "100", value=100),
        Given(CONNECTION_LIMIT.name, "many", value=None, is_ignored=True),
        Given(PROXY_PROTOCOL.name, "v1", value="PROXY"),
        Given(PROXY_PROTOCOL.name, "v2", value="PROXYV2"),
        Given(PROXY_PROTOCOL.name, "false", value=""),
        Given(PROXY_PROTOCOL.name, "v3", value=None, is_ignored=True),
    ],
    ids=str,
)
def test_values_count_as_in_the_go_program_and_ignored_ones_are_reported(given: Given) -> None:
    options = {given.name: given.text}
    option = next(one for one in OPTIONS if one.name == given.name)

    assert read(options)[option] == given.value
    assert bool(ignored(options)) is given.is_ignored
    assert all(one.is_warning and given.name in one.message for one in ignored(options))


def test_a_misspelled_annotation_is_refused_with_a_suggestion() -> None:
    (problem,) = ANNOTATIONS.problems({f"{PREFIX}subnet-ids": "x"})
    assert f'did you mean "{SUBNET_ID.name}"' in problem


def test_annotations_of_others_are_no_mistakes() -> None:
    assert not ANNOTATIONS.problems({"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"})


def test_an_empty_annotation_is_set_and_wins_over_the_configuration() -> None:
    assert read({SUBNET_ID.name: ""})[SUBNET_ID] == ""
    assert read({})[SUBNET_ID] is None


def test_proxy_protocol_and_x_forwarded_for_contradict_each_other() -> None:
    options = {f"{PREFIX}proxy-protocol": "true", f"{PREFIX}x-forwarded-for": "true"}
    with pytest.raises(Misconfigured, match="cannot be combined"):
        read(options)


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Misconfigured, match="LEAST_CONNECTIONS"):
        read({f"{PREFIX}lb-method": "LEAST_CONNECTION"})


def test_identity_and_selection_are_not_settings() -> None:
    roles = {each.name.removeprefix(PREFIX): each.role for each in OPTIONS}
    assert roles["load-balancer-id"] is ADOPTS
    assert roles["load-balancer-address"] is REPORTED
    assert roles["node-selector"] is SELECTS_MEMBERS


def test_what_cannot_be_changed_later_is_declared_so() -> None:
    fixed = {each.name.removeprefix(PREFIX) for each in OPTIONS if each.on_change is CREATE_ONLY}
    assert fixed >= {"subnet-id", "network-id", "port-id", "flavor-id", "availability-zone"}
    assert not fixed & {"connection-limit", "lb-method", "proxy-protocol", "member-subnet-id"}


def test_every_annotation_has_a_row_in_the_reference() -> None:
    rows = re.findall(r"^\| `([^`]+)`", ANNOTATIONS.reference(), re.MULTILINE)
    assert rows == [each.name for each in OPTIONS]
