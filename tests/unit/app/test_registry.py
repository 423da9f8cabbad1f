"""`--controllers`: the first entry about a controller decides; aliases are as good as names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.app.registry import CONTROLLERS
from pileus.controllers.ipam.descriptor import IPAM
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.route.descriptor import ROUTE
from pileus.controllers.volume.descriptor import VOLUME
from pileus.controllers.volume_labels.descriptor import VOLUME_LABELS

CANONICAL = [names.canonical for names in CONTROLLERS.names]
ALIASES = [names.alias for names in CONTROLLERS.names]


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
    assert CONTROLLERS.is_enabled("foo", entries) is on


def test_a_controller_that_is_off_by_default_must_be_named():
    assert not CONTROLLERS.is_enabled("foo", ("*",), off_by_default=True)
    assert CONTROLLERS.is_enabled("foo", ("*", "foo"), off_by_default=True)


def test_all_stock_controllers_run_by_default_and_three_only_when_named():
    assert [names for names in CONTROLLERS.names if not CONTROLLERS.is_running(names, ("*",))] == [
        IPAM,
        VOLUME,
        VOLUME_LABELS,
    ]
    assert CONTROLLERS.is_running(IPAM, ("*", "nodeipam"))


def test_an_alias_means_its_controller_also_after_a_minus():
    assert CONTROLLERS.resolve("cloud-node") == NODE.canonical
    assert CONTROLLERS.resolve("-route") == f"-{ROUTE.canonical}"
    assert CONTROLLERS.resolve("*") == "*"
    assert not CONTROLLERS.is_running(ROUTE, ("*", "-route"))


@given(st.lists(st.sampled_from([*CANONICAL, *ALIASES, *(f"-{one}" for one in CANONICAL), "*"])))
def test_known_entries_are_never_called_unknown(entries: list[str]):
    assert CONTROLLERS.unknown(entries, CANONICAL) == ()


def test_an_unknown_entry_is_quoted_without_its_minus():
    assert CONTROLLERS.unknown(("-bar", "service", "foo", "*"), CANONICAL) == ("bar", "foo")


def test_names_that_dashboards_and_access_rules_depend_on():
    assert {
        names.canonical: (names.alias, names.event_source, names.metric, names.identity)
        for names in CONTROLLERS.names
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
        "persistentvolume-label-controller": (
            "pvlabel",
            "persistentvolume-label-controller",
            "persistentvolume-label",
            "pvl-controller",
        ),
        "webhook-certificate-controller": (
            "webhook-certificate",
            "webhook-certificate-controller",
            "webhook-certificate",
            "webhook-certificate-controller",
        ),
        "volume-controller": ("volume", "volume-controller", "volume", "volume-controller"),
    }
