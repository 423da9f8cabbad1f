"""JSON becomes what Go's structs would make of it, and protobuf the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus_lab.apiserver.schema import conversion, field_tables, protobuf
from pileus_lab.apiserver.tree import Obj
from tests.unit.apiserver.caller import caller


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("100000Ki", "100000Ki"),
        ("1.5Gi", "1536Mi"),
        ("1e3", "1e3"),
        ("1000", "1k"),
        ("0", "0"),
        ("0.0000000001", "1n"),
        ("12E", "12E"),
        ("-5m", "-5m"),
    ],
)
def test_a_quantity_has_one_spelling(written: str, canonical: str):
    assert conversion.quantity(written) == canonical


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi"]))
def test_a_canonical_quantity_stays_and_means_the_same(number: int, suffix: str):
    once = conversion.quantity(f"{number}{suffix}")

    assert conversion.quantity(once) == once
    assert conversion.amount(once) == conversion.amount(f"{number}{suffix}")


def test_empty_fields_fall_away_and_go_structs_stay():
    given_object: dict[str, Any] = {
        "metadata": {"name": "n", "labels": {}, "creationTimestamp": None, "unknown": 1},
        "spec": {"taints": [], "unschedulable": False, "podCIDR": ""},
    }

    found: Any = conversion.canonical("core.Node", given_object)

    assert found["metadata"] == {"name": "n"}
    assert found["spec"] == {}
    assert found["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}


def test_a_false_behind_a_pointer_stays():
    spec = {"allocateLoadBalancerNodePorts": False, "publishNotReadyAddresses": False}

    found = conversion.canonical("core.Service", {"spec": spec})

    assert found["spec"] == {"allocateLoadBalancerNodePorts": False}


def test_times_are_in_utc_and_whole():
    conditions = [{"type": "Ready", "lastHeartbeatTime": "2024-01-01T01:00:00.7+01:00"}]

    found: Any = conversion.canonical("core.Node", {"status": {"conditions": conditions}})

    condition = found["status"]["conditions"][0]
    assert condition["lastHeartbeatTime"] == "2024-01-01T00:00:00Z"
    assert condition["lastTransitionTime"] is None


@pytest.mark.parametrize("type_name", sorted(field_tables.types()))
def test_every_type_of_the_tables_can_be_read(type_name: str):
    empty = conversion.canonical(type_name, {})

    assert conversion.canonical(type_name, empty) == empty


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def message(*members: tuple[int, bytes | int]) -> bytes:
    out = b""
    for number, member in members:
        if isinstance(member, int):
            out += varint(number << 3) + varint(member)
        else:
            out += varint(number << 3 | 2) + varint(len(member)) + member
    return out


def envelope(kind: bytes, raw: bytes) -> bytes:
    return protobuf.MAGIC + message((1, message((1, b"v1"), (2, kind))), (2, raw))


def test_a_pod_in_protobuf_is_the_pod_in_json():
    label = message((1, b"app"), (2, b"web"))
    moment = message((1, 86400), (2, 0))
    metadata = message((1, b"p"), (8, moment), (11, label))
    target = message((1, 1), (2, 0), (3, b"http"))
    probe = message((1, message((2, message((2, target))))))
    quantity = message((1, b"cpu"), (2, message((1, b"500m"))))
    resources = message((1, quantity))
    container = message((1, b"c"), (2, b"busybox"), (8, resources), (11, probe))
    volume = message((1, b"v"), (2, message((2, b""))))
    spec = message((1, volume), (2, container), (4, 30))

    found = protobuf.decode("core.Pod", envelope(b"Pod", message((1, metadata), (2, spec))))

    assert found == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "creationTimestamp": "1970-01-02T00:00:00Z",
            "labels": {"app": "web"},
        },
        "spec": {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [
                {
                    "name": "c",
                    "image": "busybox",
                    "resources": {"limits": {"cpu": "500m"}},
                    "readinessProbe": {"httpGet": {"port": "http"}},
                }
            ],
            "terminationGracePeriodSeconds": 30,
        },
    }


def test_a_typed_go_client_can_write():
    raw = envelope(b"Namespace", message((1, message((1, b"made-in-go"))), (2, b""), (3, b"")))

    answer = caller()(
        "POST", "/api/v1/namespaces", raw, media="application/vnd.kubernetes.protobuf"
    )

    assert answer.status == 201
    assert answer.body["metadata"]["name"] == "made-in-go"


@given(st.binary(max_size=60))
def test_garbage_in_protobuf_is_refused_or_read_but_never_breaks(garbage: bytes):
    answer = caller_of_all(protobuf.MAGIC + garbage)

    assert answer in {201, 400, 422}


CALLER = caller()


def caller_of_all(body: bytes) -> int:
    media = "application/vnd.kubernetes.protobuf"
    return CALLER("POST", "/api/v1/nodes", body, media=media, dryRun="All").status


@given(st.binary(max_size=60))
def test_garbage_in_json_is_refused_but_never_breaks(garbage: bytes):
    assert CALLER("POST", "/api/v1/nodes", garbage).status in {400, 422}


@given(
    first=st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
    second=st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
)
def test_no_field_that_is_there_twice_is_overlooked(first: dict[str, str], second: dict[str, str]):
    members = [*first.items(), *second.items()]
    inside = ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in members)
    body = f"{{{inside}}}".encode()

    repeats = bool(first.keys() & second.keys())

    assert conversion.may_repeat(body, {**first, **second}) >= repeats


def test_a_text_without_repetition_needs_no_second_look():
    assert not conversion.may_repeat(
        b'{ "a" : {"b": "c\\"d"}, "e": 1.0 }', {"a": {"b": 'c"d'}, "e": 1}
    )


def test_what_is_known_is_kept_as_it_always_is():
    value: Obj = {"metadata": {"name": "n", "labels": None}, "spec": {"unschedulable": False}}

    assert conversion.known("core.Node", value) == conversion.canonical("core.Node", value)
    assert conversion.known("core.Node", {**value, "spice": {}}) is None
