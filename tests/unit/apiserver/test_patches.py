"""Patches as pure functions: RFC 7386, RFC 6902 and the strategic merge."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus_lab.apiserver import patches
from pileus_lab.apiserver.tree import Obj

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, "bar", "bar"),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_as_the_rfc_has_it(target: object, patch: object, result: object):
    assert patches.apply_merge_patch(target, patch) == result


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_twice_is_once(target: Obj, patch: Obj):
    once = patches.apply_merge_patch(target, patch)

    assert patches.apply_merge_patch(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_leaves_its_inputs_alone(target: Obj, patch: Obj):
    before = repr(target), repr(patch)

    patches.apply_merge_patch(target, patch)

    assert (repr(target), repr(patch)) == before


@pytest.mark.parametrize(
    ("target", "given_operations", "result"),
    [
        ({"a": 1}, [("add", "/b", 2)], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [("add", "/a/1", 2)], {"a": [1, 2, 3]}),
        ({"a": [1]}, [("add", "/a/-", 2)], {"a": [1, 2]}),
        ({"a": {"b": 1}}, [("remove", "/a/b", None)], {"a": {}}),
        ({"a": [1, 2]}, [("remove", "/a/0", None)], {"a": [2]}),
        ({"a": 1}, [("replace", "/a", 2)], {"a": 2}),
        ({"a": 1}, [("replace", "/b", 2)], {"a": 1, "b": 2}),
        ({"a/b": 1, "m~n": 2}, [("replace", "/a~1b", 3), ("remove", "/m~0n", None)], {"a/b": 3}),
        ({"a": 1}, [("test", "/a", 1), ("replace", "/a", 2)], {"a": 2}),
    ],
)
def test_a_json_patch_as_the_rfc_has_it(
    target: Obj, given_operations: list[tuple[str, str, object]], result: Obj
):
    patch = [{"op": op, "path": path, "value": value} for op, path, value in given_operations]

    assert patches.apply_json_patch(target, patch) == result


def test_values_are_moved_and_copied():
    patch = [
        {"op": "move", "from": "/a", "path": "/b"},
        {"op": "copy", "from": "/b", "path": "/c"},
    ]

    assert patches.apply_json_patch({"a": {"x": 1}}, patch) == {"b": {"x": 1}, "c": {"x": 1}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/nope"},
        {"op": "replace", "path": "/nope/deep", "value": 1},
        {"op": "replace", "path": "/list/5", "value": 1},
        {"op": "add", "path": "/nope/deep", "value": 1},
        {"op": "add", "path": "/list/5", "value": 1},
        {"op": "test", "path": "/one", "value": True},
        {"op": "add", "path": "/x"},
        {"op": "jump", "path": "/x"},
    ],
)
def test_a_json_patch_that_does_not_fit_is_refused(operation: Obj):
    with pytest.raises(patches.Unprocessable):
        patches.apply_json_patch({"list": [1], "one": 1}, [operation])


def taint(key: str, value: str = "") -> dict[str, Any]:
    return {"key": key, "value": value, "effect": "NoSchedule"}


def address(kind: str, value: str) -> dict[str, str]:
    return {"type": kind, "address": value}


OLD_ADDRESSES: Obj = {
    "status": {"addresses": [address("InternalIP", "1"), address("Hostname", "h")]}
}


@pytest.mark.parametrize(
    ("patch", "addresses"),
    [
        ([address("InternalIP", "2")], [("InternalIP", "2"), ("Hostname", "h")]),
        (
            [address("ExternalIP", "3")],
            [("ExternalIP", "3"), ("InternalIP", "1"), ("Hostname", "h")],
        ),
        ([{"type": "Hostname", "$patch": "delete"}], [("InternalIP", "1")]),
        ([address("ExternalIP", "3"), {"$patch": "replace"}], [("ExternalIP", "3")]),
    ],
)
def test_a_list_merges_by_its_key(patch: list[Any], addresses: list[tuple[str, str]]):
    merged: Any = patches.apply_strategic_patch(
        "core.Node", OLD_ADDRESSES, {"status": {"addresses": patch}}
    )

    found = [(a["type"], a["address"]) for a in merged["status"]["addresses"]]
    assert found == addresses


def test_a_list_without_a_key_is_replaced():
    old: Obj = {"spec": {"taints": [taint("a"), taint("b")]}}

    merged = patches.apply_strategic_patch("core.Node", old, {"spec": {"taints": [taint("c")]}})

    assert merged == {"spec": {"taints": [taint("c")]}}


def test_primitives_are_added_and_deleted_by_value():
    old: Obj = {"metadata": {"finalizers": ["a", "b"]}}
    patch: Obj = {"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}}

    assert patches.apply_strategic_patch("core.Node", old, patch) == {
        "metadata": {"finalizers": ["c", "b"]}
    }


def test_an_order_is_kept():
    order = [{"type": "ExternalIP"}, {"type": "InternalIP"}, {"type": "Hostname"}]
    patch: Obj = {
        "status": {
            "addresses": [address("ExternalIP", "3")],
            "$setElementOrder/addresses": order,
        }
    }

    merged: Any = patches.apply_strategic_patch("core.Node", OLD_ADDRESSES, patch)

    found = [a["type"] for a in merged["status"]["addresses"]]
    assert found == ["ExternalIP", "InternalIP", "Hostname"]


def test_an_object_is_replaced_or_emptied_by_directive():
    old: Obj = {"metadata": {"labels": {"a": "1", "b": "2"}}}

    replaced = patches.apply_strategic_patch(
        "core.Node", old, {"metadata": {"labels": {"c": "3", "$patch": "replace"}}}
    )
    emptied = patches.apply_strategic_patch(
        "core.Node", old, {"metadata": {"labels": {"$patch": "delete"}}}
    )

    assert replaced == {"metadata": {"labels": {"c": "3"}}}
    assert emptied == {"metadata": {"labels": {}}}


def test_only_retained_keys_stay():
    old: Obj = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    volume = {"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}

    merged = patches.apply_strategic_patch("core.Pod", old, {"spec": {"volumes": [volume]}})

    kept = {"name": "v", "hostPath": {"path": "/x"}}
    assert merged == {"spec": {"volumes": [kept]}}


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"$patch": "fly"}}},
        {"metadata": {"name": "x", "$retainKeys": ["uid"]}},
    ],
)
def test_a_malformed_strategic_patch_is_refused(patch: Obj):
    with pytest.raises(patches.Unfit):
        patches.apply_strategic_patch("core.Node", OLD_ADDRESSES, patch)


def test_an_item_that_does_not_say_which_one_it_is_is_refused():
    patch: Obj = {"status": {"addresses": [{"address": "1"}]}}

    with pytest.raises(patches.Keyless, match="does not contain declared merge key: type"):
        patches.apply_strategic_patch("core.Node", OLD_ADDRESSES, patch)
