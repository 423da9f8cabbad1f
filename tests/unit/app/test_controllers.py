"""`--controllers`: the first entry about a controller decides; aliases are as good as names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.app import controllers
from pileus.app.controllers import ALL, IPAM, NODE, ROUTE, is_enabled, is_running, resolve, unknown

CANONICAL = [names.canonical for names in ALL]
ALIASES = [names.alias for names in ALL]


@pytest.mark.parametrize(
    ("entries", "on"),
    [
        (("*",), True),
        ((), False),
        (("foo",), True),
        (("-foo",), False),
        (("*", "-foo"), False),
        (("-foo", "*"), False),
        (("foo", "-foo"), True),
        (("-foo", "foo"), False),
        (("bar",), False),
    ],
)
def test_the_first_match_decides(entries: tuple[str, ...], on: bool):
    assert is_enabled("foo", entries) is on


def test_a_controller_that_is_off_by_default_must_be_named():
    assert not is_enabled("foo", ("*",), off_by_default=True)
    assert is_enabled("foo", ("*", "foo"), off_by_default=True)


def test_all_stock_controllers_run_by_default_and_node_ipam_only_when_named():
    assert [names for names in ALL if not is_running(names, ("*",))] == [IPAM]
    assert is_running(IPAM, ("*", "nodeipam"))


def test_an_alias_means_its_controller_also_after_a_minus():
    assert resolve("cloud-node") == NODE.canonical
    assert resolve("-route") == f"-{ROUTE.canonical}"
    assert resolve("*") == "*"
    assert not is_running(ROUTE, ("*", "-route"))


@given(st.lists(st.sampled_from([*CANONICAL, *ALIASES, *(f"-{one}" for one in CANONICAL), "*"])))
def test_known_entries_are_never_called_unknown(entries: list[str]):
    assert unknown(entries, CANONICAL) == ()


def test_an_unknown_entry_is_quoted_without_its_minus():
    assert unknown(("-bar", "service", "foo", "*"), CANONICAL) == ("bar", "foo")


def test_names_that_dashboards_and_access_rules_depend_on():
    assert {
        names.canonical: (names.alias, names.event_source, names.metric, names.identity)
        for names in controllers.ALL
    } == {
        "cloud-node-controller": (
            "cloud-node",
            "cloud-node-controller",
            "cloud-node",
            "node-controller",
        ),
        "cloud-node-lifecycle-controller": (
            "cloud-node-lifecycle",
            "cloud-node-lifecycle-controller",
            "cloud-node-lifecycle",
            "node-controller",
        ),
        "service-lb-controller": ("service", "service-controller", "service", "service-controller"),
        "node-route-controller": ("route", "route_controller", "route", "route-controller"),
        "node-ipam-controller": ("nodeipam", "cidrAllocator", "", "node-controller"),
        "ssh-key-controller": ("ssh-key", "ssh-key-controller", "ssh-key", "ssh-key-controller"),
    }
