"""Bad input: status, reason and words of the real server, as seen on kube-apiserver 1.37.1."""

# ruff: noqa: E501 -- the real server's words, unbroken

import pytest

from tests.unit.apiserver.caller import (
    DEFAULT,
    JSON_PATCH,
    MAPS,
    MERGE,
    NODES,
    SERVICES,
    STRATEGIC,
    caller,
    config_map,
    node,
    service,
)

HANDLED = 'Service in version "v1" cannot be handled as a Service: '
UNRECOGNIZED = "the object provided is unrecognized (must be of type Service): "
CUT = "couldn't get version/kind; json parse error: unexpected end of JSON input "


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"kind":"Service",', f'{UNRECOGNIZED}{CUT}({{"kind":"Service",)'),
        (b"", f"{UNRECOGNIZED}{CUT}(<empty>)"),
        (
            b'{"kind":"Pod","apiVersion":"v1"}',
            (
                'Pod in version "v1" cannot be handled as a Service: converting (v1.Pod) to '
                "(core.Service): unknown conversion"
            ),
        ),
        (
            b'{"kind":"Foo","apiVersion":"v1"}',
            (
                'Foo in version "v1" cannot be handled as a Service: no kind "Foo" is registered for '
                'version "v1" in scheme "pkg/runtime/scheme.go:111"'
            ),
        ),
        (
            b'{"spec":{"ports":[{"port":"x"}]}}',
            (
                f"{HANDLED}json: cannot unmarshal string into Go struct field "
                "ServicePort.spec.ports.port of type int32"
            ),
        ),
        (
            b'{"metadata":{"labels":{"a":5}}}',
            (
                f"{HANDLED}json: cannot unmarshal number into Go struct field "
                "ObjectMeta.metadata.labels of type string"
            ),
        ),
        (
            b'{"metadata":{"creationTimestamp":"x"}}',
            f'{HANDLED}parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
        (
            b'{"metadata":{"name":"a","namespace":"other"}}',
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
)
def test_a_body_that_is_no_service(body: bytes, message: str):
    answer = caller()("POST", SERVICES, body)

    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert answer.message == message


def test_every_fault_is_told_with_its_path():
    bad = {
        "metadata": {"name": "A_b"},
        "spec": {
            "ports": [{"port": 70000, "protocol": "X"}, {"port": 80}],
            "type": "Foo",
            "sessionAffinity": "q",
        },
    }

    answer = caller()("POST", SERVICES, bad)

    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.body["details"]["kind"] == "Service"
    assert [(c["field"], c["reason"]) for c in answer.body["details"]["causes"]] == [
        ("metadata.name", "FieldValueInvalid"),
        ("spec.ports[0].name", "FieldValueRequired"),
        ("spec.ports[0].port", "FieldValueInvalid"),
        ("spec.ports[0].protocol", "FieldValueNotSupported"),
        ("spec.ports[0].targetPort", "FieldValueInvalid"),
        ("spec.ports[1].name", "FieldValueRequired"),
        ("spec.sessionAffinity", "FieldValueNotSupported"),
        ("spec.type", "FieldValueNotSupported"),
    ]
    assert answer.message.startswith('Service "A_b" is invalid: [metadata.name: Invalid value: ')
    assert (
        'spec.ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"'
        in (answer.message)
    )


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/api/v1/foo", 404, "the server could not find the requested resource"),
        ("GET", f"{SERVICES}/x/foo", 404, "the server could not find the requested resource"),
        ("GET", f"{DEFAULT}/nodes/x", 404, "the server could not find the requested resource"),
        ("GET", f"{NODES}/x", 404, 'nodes "x" not found'),
        ("PUT", NODES, 405, "the server does not allow this method on the requested resource"),
        (
            "DELETE",
            "/api/v1/namespaces",
            405,
            "the server does not allow this method on the requested resource",
        ),
        (
            "POST",
            "/api/v1/services",
            405,
            "the server does not allow this method on the requested resource",
        ),
    ],
)
def test_a_wrong_address(method: str, path: str, status: int, message: str):
    answer = caller()(method, path, {} if method != "GET" else None)

    assert (answer.status, answer.message) == (status, message)


def test_an_unknown_path_is_no_page():
    answer = caller()("GET", "/apis/foo/v1/bars")

    assert (answer.status, answer.response.body) == (404, b"404 page not found\n")


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        (
            {"labelSelector": "a===b"},
            400,
            "unable to parse requirement: found '=', expected: identifier",
        ),
        (
            {"labelSelector": "a b"},
            400,
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            {"labelSelector": "a in (b"},
            400,
            "unable to parse requirement: found '', expected: ',' or ')'",
        ),
        ({"labelSelector": "a,"}, 400, "found '', expected: identifier after ','"),
        ({"fieldSelector": "spec.foo=b"}, 400, "field label not supported: spec.foo"),
        ({"fieldSelector": "foo"}, 400, "invalid selector: 'foo'; can't understand 'foo'"),
        ({"limit": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (
            {"resourceVersion": "abc"},
            400,
            (
                'invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: '
                'parsing "abc": invalid syntax'
            ),
        ),
        (
            {"resourceVersionMatch": "Exact"},
            422,
            (
                'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                "resourceVersionMatch is forbidden unless resourceVersion is provided"
            ),
        ),
        (
            {"watch": "1", "sendInitialEvents": "true"},
            422,
            (
                'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            ),
        ),
    ],
)
def test_a_list_that_cannot_be_had(query: dict[str, str], status: int, message: str):
    answer = caller()("GET", NODES, **query)

    assert (answer.status, answer.message) == (status, message)


def test_the_future_cannot_be_listed():
    answer = caller()("GET", NODES, resourceVersion="999999")

    assert (answer.status, answer.body["reason"]) == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert answer.body["details"]["retryAfterSeconds"] == 1


REJECTED = "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("media", "patch", "status", "message"),
    [
        (MERGE, b"{", 400, "invalid JSON patch"),
        (
            MERGE,
            b"[]",
            400,
            (
                "error decoding patch: json: cannot unmarshal array into Go value of type "
                "map[string]interface {}"
            ),
        ),
        (
            STRATEGIC,
            b"[]",
            400,
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            JSON_PATCH,
            b"{}",
            400,
            (
                "error decoding patch: json: cannot unmarshal object into Go value of type "
                "[]handlers.jsonPatchOp"
            ),
        ),
        (JSON_PATCH, b'[{"op":"remove","path":"/data/x"}]', 422, REJECTED),
        (JSON_PATCH, b'[{"op":"test","path":"/metadata/name","value":"x"}]', 422, REJECTED),
        (JSON_PATCH, b'[{"op":"foo","path":"/metadata/name"}]', 422, REJECTED),
        (
            MERGE,
            b'{"metadata":{"name":"q"}}',
            400,
            "the name of the object (q) does not match the name on the URL (a)",
        ),
        ("application/foo", b"{}", 415, "415: Unsupported Media Type"),
        ("application/apply-patch+yaml", b"{}", 415, "415: Unsupported Media Type"),
    ],
)
def test_a_patch_that_does_not_apply(media: str, patch: bytes, status: int, message: str):
    call = caller()
    call.create(MAPS, config_map("a"))

    answer = call("PATCH", f"{MAPS}/a", patch, media=media)

    assert (answer.status, answer.message) == (status, message)


def test_unknown_fields_are_refused_or_warned_of():
    body = b'{"metadata":{"name":"a","foo":1},"spec":{"ports":[{"port":80,"bar":2}],"type":"ClusterIP","type":"NodePort"}}'
    complaints = (
        'unknown field "metadata.foo"',
        'unknown field "spec.ports[0].bar"',
        'duplicate field "spec.type"',
    )
    call = caller()

    strict = call("POST", SERVICES, body, fieldValidation="Strict")
    warned = call("POST", SERVICES, body)
    quiet = call("POST", SERVICES, body, fieldValidation="Ignore", dryRun="All")
    wrong = call("POST", SERVICES, body, fieldValidation="Foo")

    assert strict.status == 400
    assert strict.message == f"{HANDLED}strict decoding error: {', '.join(complaints)}"
    assert (warned.status, warned.response.warnings) == (201, complaints)
    assert quiet.response.warnings == ()
    assert wrong.message == (
        'CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Foo": '
        'supported values: "", "Ignore", "Strict", "Warn"'
    )


def test_what_is_taken_or_missing():
    call = caller()
    call.create(MAPS, config_map("a"))

    taken = call("POST", MAPS, config_map("a"))
    homeless = call("POST", "/api/v1/namespaces/nope/configmaps", config_map("a"))

    assert (taken.status, taken.body["reason"]) == (409, "AlreadyExists")
    assert taken.message == 'configmaps "a" already exists'
    assert (homeless.status, homeless.message) == (404, 'namespaces "nope" not found')


def test_too_much_and_the_wrong_kind_of_data():
    call = caller()

    large = call("POST", MAPS, b" " * (3 * 1024 * 1024 + 1))
    media = call("POST", MAPS, b"{}", media="text/foo")
    accept = call("GET", MAPS, accept="text/foo")

    assert (large.status, large.message) == (413, "Request entity too large: limit is 3145728")
    assert (media.status, media.body["reason"]) == (415, "UnsupportedMediaType")
    assert (accept.status, accept.body["reason"]) == (406, "NotAcceptable")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"spec": {"providerID": "y://2"}},
            "spec.providerID: Invalid value: null: field cannot be modified once set",
        ),
        (
            {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": None}},
            'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
        ),
        ({"spec": {"taints": [{"key": "a"}]}}, "metadata.taints[0].effect: Required value"),
        (
            {"metadata": {"labels": {"-x": "y"}}},
            'metadata.labels: Invalid value: "-x": name part must consist of',
        ),
    ],
)
def test_a_node_keeps_its_identity(change: dict[str, object], fault: str):
    call = caller()
    call.create(NODES, node("n", providerID="x://1", podCIDR="10.1.0.0/24"))

    answer = call("PATCH", f"{NODES}/n", change, media=MERGE)

    assert answer.status == 422
    assert answer.message.startswith(f'Node "n" is invalid: {fault}')


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (
            {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000}]},
            "spec.ports[0].nodePort: Invalid value: 30000: provided port is already allocated",
        ),
        (
            {"clusterIP": "10.0.0.9"},
            'spec.clusterIPs: Invalid value: ["10.0.0.9"]: failed to allocate IP 10.0.0.9: provided IP is already allocated',
        ),
        (
            {"clusterIP": "11.0.0.9"},
            'spec.clusterIPs: Invalid value: ["11.0.0.9"]: failed to allocate IP 11.0.0.9: the provided network does not match the current range',
        ),
        ({"ports": []}, "spec.ports: Required value"),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            'spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services',
        ),
        (
            {"type": "LoadBalancer", "clusterIP": "None"},
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for LoadBalancer services",
        ),
    ],
)
def test_a_service_that_cannot_be(spec: dict[str, object], fault: str):
    call = caller()
    taken = {"type": "NodePort", "clusterIP": "10.0.0.9", "ports": [{"port": 1, "nodePort": 30000}]}
    call.create(SERVICES, service("first", **taken))

    answer = call("POST", SERVICES, service("x", **spec))

    assert answer.status == 422
    assert answer.message == f'Service "x" is invalid: {fault}'


def test_an_object_nested_too_deeply_is_refused():
    depth = 100_000
    body = b'{"metadata":{"name":"a"},"data":' + b"[" * depth + b"]" * depth + b"}"

    assert caller()("POST", MAPS, body).status == 400
