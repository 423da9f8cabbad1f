"""Whatever an API server, a plugin or a file says, it is decoded, skipped or refused by name."""

import contextlib
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.exec import Command, Finished, Plugin, parse_output
from pileus.kube.config.kubeconfig import Kubeconfig, read_kubeconfig
from pileus.kube.decoding import DEEPEST, Malformed, decode, shallow
from pileus.kube.errors import ApiError, CredentialsError, KubeError, Status, refusal
from pileus.kube.model.coordination_v1 import Lease
from pileus.kube.model.core_v1 import EVENTS, NODES, SERVICES
from pileus.kube.model.meta import Resource
from pileus.kube.patch import MergePatch
from pileus.runtime.lease import KubeLease
from pileus.server.client_certificates import proxies_from_settings
from pileus.server.errors import BadCertificate
from pileus.testing.scripted import Answer, Stream
from tests.unit.kube.harness import Kube
from tests.unit.kube.hostile import (
    DEPTHS,
    MALFORMED,
    RESOURCES,
    WELL_FORMED,
    deep,
    nested_lists,
    objects,
)

ANY = WELL_FORMED | MALFORMED
EACH_RESOURCE = st.sampled_from(RESOURCES)


def whole(resource: Resource[Any], values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return objects(resource.type, values) | values


async def outcome(answer: Any) -> object:
    """What came back; only an error with a name may be raised."""
    try:
        return await answer
    except KubeError as error:
        return str(error) or pytest.fail("an error without a text")


@given(st.data())
async def test_any_answer_to_any_verb_is_an_object_or_a_named_error(data: st.DataObject) -> None:
    resource = data.draw(EACH_RESOURCE)
    body = data.draw(whole(resource, ANY))
    client = Kube(*[Answer(200, body)] * 5).client

    await outcome(client.get(resource, "x", namespace="n"))
    await outcome(client.create(resource, {}, namespace="n"))
    await outcome(client.update(resource, {}, name="x", namespace="n"))
    await outcome(client.patch(resource, "x", MergePatch({}), namespace="n"))
    assert await outcome(client.delete(resource, "x", namespace="n")) is None


@given(st.data())
async def test_an_odd_object_in_a_list_hides_none_of_the_others(data: st.DataObject) -> None:
    resource = data.draw(EACH_RESOURCE)
    odd = data.draw(whole(resource, WELL_FORMED))
    good = [b'{"metadata":{"name":"%s","uid":"u"}}' % name for name in (b"first", b"last")]
    body = b'{"metadata":{"resourceVersion":"7"},"items":[%s,%s,%s]}' % (good[0], odd, good[1])

    listed = await Kube(Answer(200, body)).client.list(resource)

    assert len(listed.items) + len(listed.unreadable) == 3
    assert {"first", "last"} <= {item.metadata.name for item in listed.items}


@given(st.data())
async def test_any_list_is_a_list_or_a_named_error(data: st.DataObject) -> None:
    resource = data.draw(EACH_RESOURCE)
    item, metadata = data.draw(whole(resource, ANY)), data.draw(ANY)
    bodies = (
        item,
        b'{"metadata":%s,"items":[%s]}' % (metadata, item),
        b'{"metadata":{"resourceVersion":"7"},"items":%s}' % item,
        b'{"metadata":{"resourceVersion":%s,"continue":%s}}' % (metadata, metadata),
    )
    for body in bodies:
        await outcome(Kube(Answer(200, body), Answer(200, b"{}")).client.list(resource))


@given(st.data())
async def test_an_odd_object_in_a_watch_hides_none_of_the_others(data: st.DataObject) -> None:
    resource = data.draw(EACH_RESOURCE)
    odd = data.draw(whole(resource, WELL_FORMED))
    lines = (
        b'{"type":"MODIFIED","object":%s}\n' % odd,
        b'{"type":"ADDED","object":{"metadata":{"name":"good"}}}\n',
    )
    client = Kube(Stream([b"".join(lines)])).client

    async with aclosing(client.watch(resource)) as events:
        seen = [event async for event in events]

    assert [event.type for event in seen[1:]] == ["ADDED"]
    assert seen[1].object.metadata.name == "good"


@given(st.data())
async def test_any_line_of_a_watch_is_an_event_or_a_named_error(data: st.DataObject) -> None:
    resource = data.draw(EACH_RESOURCE)
    kind = data.draw(st.sampled_from((b'"ADDED"', b'"ERROR"', b'"DELETED"', b'"?"')) | ANY)
    item = data.draw(whole(resource, ANY))
    for line in (b'{"type":%s,"object":%s}\n' % (kind, item), item + b"\n"):
        client = Kube(Stream([line])).client
        async with aclosing(client.watch(resource)) as events:
            await outcome(anext(events, None))


@given(objects(Status, ANY) | ANY, st.sampled_from((400, 401, 404, 409, 410, 429, 500, 503)))
def test_any_refusal_is_an_error_with_a_sane_wait(body: bytes, code: int) -> None:
    error = refusal("GET", "/x", code, headers={}, body=body)

    assert isinstance(error, ApiError)
    assert error.retry_after is None or 0 < error.retry_after <= 120


@given(objects(Lease, ANY) | ANY)
async def test_any_lease_can_be_written_back_or_is_a_named_error(body: bytes) -> None:
    store = KubeLease(Kube(*[Answer(200, body)] * 3).client, "kube-system", "ccm")

    lease = await outcome(store.read())

    if isinstance(lease, dict):
        await outcome(store.update(lease))
    await outcome(store.create({}))


@given(objects(msgspec.defstruct("Credential", ["apiVersion", "kind", "status"]), ANY) | ANY)
def test_any_output_of_a_plugin_is_a_credential_or_a_named_error(output: bytes) -> None:
    plugin = Plugin(Command("/bin/login"), "client.authentication.k8s.io/v1")

    with pytest.raises(CredentialsError, match="exec plugin /bin/login"):
        parse_output(plugin, Finished(0, output, ""))


@given(objects(Kubeconfig, ANY) | ANY)
def test_any_kubeconfig_is_read_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "hostile-kubeconfig"
    path.write_bytes(text)

    with contextlib.suppress(InvalidConfiguration):
        read_kubeconfig(path)


@given(ANY.map(lambda value: value.decode(errors="replace")))
def test_any_header_names_in_the_clusters_settings_are_used_or_refused(text: str) -> None:
    settings = {"requestheader-client-ca-file": "x", "requestheader-username-headers": text}

    with contextlib.suppress(BadCertificate):
        assert proxies_from_settings(settings)


# What is nested deep in a field that we do not read costs nothing.


@pytest.mark.parametrize("levels", [900, 1100, 100_000])
@pytest.mark.parametrize("resource", [NODES, SERVICES, EVENTS], ids=lambda each: each.plural)
async def test_fields_that_we_do_not_read_may_be_nested_any_depth(
    resource: Resource[Any], levels: int
) -> None:
    fields = b'[{"manager":"m\xff","fieldsV1":%s}]' % deep(levels)
    body = b'{"metadata":{"name":"a","managedFields":%s,"uid":"u"}}' % fields
    listed = b'{"metadata":{"resourceVersion":"7"},"items":[%s,%s]}' % (body, body)
    event = b'{"type":"ADDED","object":%s}\n' % body
    kube = Kube(Answer(200, body), Answer(200, listed), Stream([event]))

    got = await kube.client.get(resource, "a", namespace="n")
    found = await kube.client.list(resource)
    async with aclosing(kube.client.watch(resource)) as events:
        seen = await anext(events)

    assert [each.metadata.uid for each in (got, *found.items, seen.object)] == ["u"] * 4
    assert kube.sample("pileus_unreadable_objects_total", resource=resource.plural) is None


async def test_a_deep_lease_is_read_without_its_managed_fields() -> None:
    body = b'{"metadata":{"name":"l","managedFields":[%s],"x":"y"},"spec":{"holderIdentity":"me"}}'
    store = KubeLease(Kube(Answer(200, body % deep(1100))).client, "kube-system", "l")

    lease = await store.read()

    assert lease == {"metadata": {"name": "l", "x": "y"}, "spec": {"holderIdentity": "me"}}


def test_a_deep_status_still_says_what_is_wrong() -> None:
    body = b'{"kind":"Status","reason":"NotFound","message":"no","x":%s}' % deep(1100)

    error = refusal("GET", "/x", 404, headers={}, body=body)

    assert error.message == "no"


@pytest.mark.parametrize(
    "text",
    [nested_lists(100_000), b"- " * 5000 + b"a", b"x: " + nested_lists(1_000_000)],
)
def test_a_kubeconfig_nested_too_deep_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(text)

    with pytest.raises(InvalidConfiguration, match="nested more than 64 levels deep at line 1"):
        read_kubeconfig(path)


# The laws of `shallow`.

JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def pruned(value: Any, levels: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return None
    if isinstance(value, dict):
        return {key: pruned(inner, levels - 1) for key, inner in value.items()}
    return [pruned(inner, levels - 1) for inner in value]


@given(JSON, st.integers(0, 5), st.sampled_from((None, 1)), st.booleans())
def test_shallow_cuts_at_its_depth_and_nothing_else(
    value: Any, deepest: int, indent: int | None, plain: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=plain).encode()

    assert json.loads(shallow(text, deepest)) == pruned(value, deepest)


@given(JSON)
def test_shallow_leaves_ordinary_text_as_it_is(value: Any) -> None:
    text = json.dumps(value).encode()

    assert shallow(text, 1000) == text


@given(st.binary() | st.text(alphabet='{}[]",:\\ a').map(str.encode) | MALFORMED, DEPTHS)
def test_decode_raises_nothing_but_malformed(text: bytes, levels: int) -> None:
    decoder = msgspec.json.Decoder(object)
    for each in (text, b'{"a":%s,"b":%s}' % (deep(levels), text)):
        with contextlib.suppress(Malformed):
            decode(decoder, each)


def test_the_models_are_less_deep_than_what_is_kept() -> None:
    levels = max(depth(msgspec.inspect.type_info(each.type)) for each in RESOURCES)

    assert levels + 2 < DEEPEST / 2  # a list and its items around it


def depth(info: Any) -> int:
    return 1 + max((depth(inner) for inner in inside(info)), default=0)


def inside(info: Any) -> list[Any]:
    """The types within a type, as msgspec describes it."""
    if isinstance(info, msgspec.inspect.StructType):
        return [field.type for field in info.fields]
    if isinstance(info, msgspec.inspect.UnionType):
        return list(info.types)
    if isinstance(info, msgspec.inspect.DictType):
        return [info.key_type, info.value_type]
    item = getattr(info, "item_type", None)
    return [item] if item is not None else []


def numbers_and_times(info: Any) -> list[Any]:
    found = (
        [info] if isinstance(info, msgspec.inspect.IntType | msgspec.inspect.DateTimeType) else []
    )
    return found + [each for inner in inside(info) for each in numbers_and_times(inner)]


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda each: each.kind)
def test_every_integer_is_bounded_and_every_time_has_a_zone(resource: Resource[Any]) -> None:
    for info in numbers_and_times(msgspec.inspect.type_info(resource.type)):
        if isinstance(info, msgspec.inspect.IntType):
            assert info.ge is not None, resource.kind
            assert info.le is not None, resource.kind
            assert -(2**63) <= info.ge < info.le < 2**63
        else:
            assert info.tz is True
