"""Create, update and patch."""

from dataclasses import replace
from typing import cast

import msgspec

from pileus_lab.apiserver import errors, escalation, field_errors, patches
from pileus_lab.apiserver.access import Attempt
from pileus_lab.apiserver.call import Call, Response
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.schema import conversion
from pileus_lab.apiserver.state import State
from pileus_lab.apiserver.store import Entry, encode
from pileus_lab.apiserver.tree import Obj, grow, name_of, text, texts
from pileus_lab.apiserver.verbs import admission, delete, request_body

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_JSON_KINDS: dict[type, str] = {str: "string", bool: "bool", list: "array", dict: "object"}
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


def create(state: State, call: Call) -> Response:
    value, warnings = request_body.decode(call, call.resource)
    admission.check_namespace(state, call.resource, call.namespace, name_of(value))
    return _create(state, call, value, warnings)


def _create(state: State, call: Call, given: Obj, warnings: tuple[str, ...]) -> Response:
    resource, shelf = call.resource, state.shelf(call.resource)
    value = _inward(resource, given)
    escalation.check(state, call, value, None)
    key = admission.new_object(state, call, value)
    if key in shelf.entries:
        raise _taken(resource, shelf.entries[key])
    if call.query.get("dryRun"):
        return _shown(resource, value, 201, warnings)
    entry = state.store.write(shelf, key, value)
    return Response(status=201, body=resource.whole(entry), warnings=warnings)


def _taken(resource: Resource, entry: Entry) -> errors.Problem:
    told = errors.already_exists(resource.subject, entry.key.name)
    if text(entry.decode(), "metadata", "deletionTimestamp"):
        told.message = f"object is being deleted: {told.message}"
    return told


def update(state: State, call: Call) -> Response:
    value, warnings = request_body.decode(call, call.resource)
    current = state.shelf(call.resource).entries.get(call.key)
    if current is None:
        if not call.resource.creates_on_update or call.subresource:
            raise errors.not_found(call.resource.subject, call.name)
        admission.check_namespace(state, call.resource, call.namespace, call.name)
        _check_may_create(state, call)
        admission.check_name(call, value)
        grow(value, "metadata").pop("resourceVersion", None)
        return _create(state, call, value, warnings)
    return _replace(state, call, current, (_inward(call.resource, value), warnings))


def _check_may_create(state: State, call: Call) -> None:
    """Refuses a PUT that would create an object if the user may not create it.

    Raises `Problem` 403.
    """
    resource = call.resource
    attempt = Attempt(
        verb="create",
        group=resource.group,
        resource=resource.plural,
        namespace=call.namespace,
        name=call.name,
    )
    if state.authorizer.allows(call.user, attempt) is None:
        raise errors.forbidden(resource.subject, call.name, "")


def patch(state: State, call: Call) -> Response:
    media = request_body.media_type(call)
    if media not in PATCHES:
        raise errors.unsupported_patch(PATCHES)
    request_body.check_write_options(call)
    current = state.shelf(call.resource).entries.get(call.key)
    if current is None:
        raise errors.not_found(call.resource.subject, call.name)
    shown = _outward(call.resource, current.decode())
    patched = _apply(call.resource, media, shown, call.request.body)
    request_body.check_kind(patched, call.resource)
    value, warnings = _fit(call, patched)
    value = _inward(call.resource, request_body.typeless(value))
    return _replace(state, call, current, (value, warnings))


def _fit(call: Call, patched: Obj) -> tuple[Obj, tuple[str, ...]]:
    """The object as it is stored, and warnings about it."""
    schema = call.resource.schema
    kept = conversion.known(schema, patched)
    if kept is not None:
        return kept, ()
    warnings = request_body.judge(call, call.resource, conversion.unknown(schema, patched))
    try:
        return conversion.canonical(schema, patched), warnings
    except conversion.Unfit as error:
        shown = encode(patched).decode()
        raise errors.invalid(
            "", "", "", [field_errors.invalid("patch", shown, str(error))]
        ) from error


def _apply(resource: Resource, media: str, value: Obj, given: bytes) -> Obj:
    wanted = _decode_patch(media, given)
    try:
        if media == JSON_PATCH:
            return patches.apply_json_patch(value, wanted)
        if media == MERGE_PATCH:
            return cast("Obj", patches.apply_merge_patch(value, wanted))
        return patches.apply_strategic_patch(resource.schema, value, cast("Obj", wanted))
    except patches.Unprocessable as error:
        told = "the server rejected our request due to an error in our request"
        raise errors.Problem(422, "Invalid", told, {}) from error
    except patches.Keyless as error:
        raise errors.Problem(500, "", str(error)) from error
    except (patches.Malformed, patches.Unfit) as error:
        raise errors.bad_request(str(error)) from error


def _decode_patch(media: str, given: bytes) -> object:
    try:
        wanted = msgspec.json.decode(given, type=object)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        told = "invalid JSON patch" if media == MERGE_PATCH else f"error decoding patch: {error}"
        raise errors.bad_request(told) from error
    if media == JSON_PATCH:
        return _check_operations([] if wanted is None else wanted)
    if wanted is None and media == STRATEGIC_PATCH:
        return {}
    if wanted is None:
        raise errors.bad_request("Invalid JSON Patch")
    if not isinstance(wanted, dict):
        prefix = "error decoding patch: " if media == MERGE_PATCH else ""
        raise errors.bad_request(prefix + _not_a("map[string]interface {}", wanted))
    return cast("Obj", wanted)


def _not_a(wanted: str, found: object) -> str:
    """Returns the message of Go for JSON of the wrong type."""
    kind = _JSON_KINDS.get(type(found), "number")
    return f"json: cannot unmarshal {kind} into Go value of type {wanted}"


def _check_operations(wanted: object) -> object:
    if not isinstance(wanted, list):
        told = _not_a("[]handlers.jsonPatchOp", wanted)
        raise errors.bad_request(f"error decoding patch: {told}")
    for operation in cast("list[object]", wanted):
        if not isinstance(operation, dict):
            told = _not_a("handlers.jsonPatchOp", operation)
            raise errors.bad_request(f"error decoding patch: {told}")
    count = len(cast("list[object]", wanted))
    if count > patches.LIMIT:
        told = f"The allowed maximum operations in a JSON patch is {patches.LIMIT}, got {count}"
        raise errors.Problem(413, "RequestEntityTooLarge", told)
    return cast("object", wanted)


def _replace(
    state: State, call: Call, current: Entry, given: tuple[Obj, tuple[str, ...]]
) -> Response:
    value, warnings = given
    resource, shelf = call.resource, state.shelf(call.resource)
    old = current.decode()
    admission.check_version(call, value, current)
    escalation.check(state, call, value, old)
    admission.changed_object(state, call, value, old)
    grow(value, "metadata")["resourceVersion"] = str(current.version)
    if call.query.get("dryRun"):
        return _shown(resource, value, 200, warnings)
    if text(value, "metadata", "deletionTimestamp") and not _is_held(resource, value):
        gone = state.store.remove(shelf, call.key, old)
        grow(value, "metadata")["resourceVersion"] = str(gone.version)
        delete.after_removal(state, resource, call.namespace)
        return _shown(resource, value, 200, warnings)
    if value == old:
        return Response(body=resource.whole(current), warnings=warnings)
    entry = state.store.write(shelf, call.key, value)
    return Response(body=resource.whole(entry), warnings=warnings)


def _is_held(resource: Resource, value: Obj) -> bool:
    """Whether an object that is being deleted still has to wait."""
    if texts(value, "metadata", "finalizers") or texts(value, "spec", "finalizers"):
        return True
    grace = cast("Obj", value["metadata"]).get("deletionGracePeriodSeconds")
    return resource.kind == "Pod" and isinstance(grace, int) and grace > 0


def _shown(resource: Resource, value: Obj, status: int, warnings: tuple[str, ...]) -> Response:
    shown = encode(_outward(resource, value))
    return Response(status=status, body=resource.head + shown[1:], warnings=warnings)


def _outward(resource: Resource, value: Obj) -> Obj:
    return resource.face.outward(value) if resource.face else value


def _inward(resource: Resource, value: Obj) -> Obj:
    if resource.face is None:
        return value
    return request_body.typeless(conversion.canonical("core.Event", resource.face.inward(value)))


def finalize(state: State, call: Call) -> Response:
    """Sets the finalizers of a namespace's spec; without any, it is deleted."""
    value, warnings = request_body.decode(call, call.resource)
    current = state.shelf(call.resource).entries.get(call.key)
    if current is None:
        raise errors.not_found(call.resource.subject, call.name)
    admission.check_version(call, value, current)
    old = current.decode()
    old["spec"] = value.get("spec", {})
    if text(old, "metadata", "deletionTimestamp") and not _is_held(call.resource, old):
        entry = state.store.remove(state.shelf(call.resource), call.key, old)
    else:
        entry = state.store.write(state.shelf(call.resource), call.key, old)
    return Response(body=call.resource.whole(entry), warnings=warnings)


def bind(state: State, call: Call) -> Response:
    """Assigns a pod to a node."""
    binding, _ = request_body.decode(replace(call, verb="create"), BINDINGS)
    shelf = state.shelf(call.resource)
    current = shelf.entries.get(call.key)
    if current is None:
        raise errors.not_found(call.resource.subject, call.name)
    value = current.decode()
    if text(value, "spec", "nodeName"):
        why = f'pod {call.name} is already assigned to node "{text(value, "spec", "nodeName")}"'
        raise errors.conflict(errors.Subject("", "pods/binding"), call.name, why)
    grow(value, "spec")["nodeName"] = text(binding, "target", "name")
    state.store.write(shelf, call.key, value)
    return success(201)


def success(code: int) -> Response:
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return Response(status=code, body=encode({**status, "code": code}))


BINDINGS = Resource(kind="Binding", plural="bindings", schema="core.Binding", verbs=("create",))
