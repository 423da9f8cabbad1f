"""From the bytes of a request to an object of the expected kind."""

from typing import cast

import msgspec
import yaml

from pileus_lab.apiserver import errors, field_errors
from pileus_lab.apiserver.call import JSON, Call
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.schema import conversion, field_tables, protobuf
from pileus_lab.apiserver.tree import Obj, branch, text

YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)
VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_SCHEME = "pkg/runtime/scheme.go:111"
_EXCERPT = 300
_GO_HEAD = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)


def media_type(call: Call) -> str:
    return call.request.headers.get("content-type", "").partition(";")[0].strip().lower() or JSON


def decode(call: Call, resource: Resource) -> tuple[Obj, tuple[str, ...]]:
    """Returns the canonical object without kind and version, and warnings about it.

    Raises `Problem` 400, 415, 422.
    """
    check_write_options(call)
    value, given = _read(call, resource)
    check_kind(value, resource)
    kept = conversion.known(resource.schema, value)
    if kept is not None and not (given and conversion.may_repeat(given, value)):
        return typeless(kept), ()
    complaints = conversion.complaints(resource.schema, given) if given else []
    warnings = judge(call, resource, complaints)
    try:
        return typeless(conversion.canonical(resource.schema, value)), warnings
    except conversion.Unfit as error:
        raise _unusable(resource, str(error)) from error


def _read(call: Call, resource: Resource) -> tuple[Obj, bytes]:
    """Returns the object as it was sent, and the text to check for unknown fields."""
    media, given = media_type(call), call.request.body
    if media == PROTOBUF:
        try:
            return protobuf.decode(resource.schema, given), b""
        except protobuf.Garbled as error:
            raise _unrecognized(resource, str(error)) from error
    if media not in ACCEPTED:
        raise errors.unsupported_media(ACCEPTED)
    body = _as_json(given, resource) if media == YAML else given
    ignored = call.query.get("fieldValidation") == "Ignore"
    return _parse(body, resource), b"" if ignored else body


def typeless(value: Obj) -> Obj:
    """Returns the object as the store keeps it: without kind, version and managed fields."""
    value.pop("kind", None)
    value.pop("apiVersion", None)
    branch(value, "metadata").pop("managedFields", None)
    branch(value, "metadata").pop("selfLink", None)
    return value


def _as_json(body: bytes, resource: Resource) -> bytes:
    try:
        return msgspec.json.encode(yaml.safe_load(body))
    except (yaml.YAMLError, TypeError) as error:
        raise _unrecognized(resource, f"yaml: {error}") from error


def _parse(body: bytes, resource: Resource) -> Obj:
    try:
        value = msgspec.json.decode(body, type=object)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unrecognized(resource, f"json parse error: {_syntax(body, error)}") from error
    if not isinstance(value, dict):
        got = {b"[": "array", b'"': "string"}.get(body.lstrip()[:1], "number")
        told = f"json parse error: json: cannot unmarshal {got} into Go value of type {_GO_HEAD}"
        raise _unrecognized(resource, f"{told} ({body.hex()[:_EXCERPT]})")
    return cast("Obj", value)


def _syntax(body: bytes, error: Exception) -> str:
    shown = body[:_EXCERPT].decode(errors="replace") or "<empty>"
    text_ = str(error)
    if "truncated" in text_ or not body:
        return f"unexpected end of JSON input ({shown})"
    return f"{text_} ({shown})"


def _unrecognized(resource: Resource, why: str) -> errors.Problem:
    return errors.bad_request(
        f"the object provided is unrecognized (must be of type {resource.kind}): "
        f"couldn't get version/kind; {why}"
    )


def _unusable(resource: Resource, why: str, kind: str = "", version: str = "") -> errors.Problem:
    return errors.bad_request(
        f'{kind or resource.kind} in version "{version or resource.version}" cannot be handled '
        f"as a {resource.kind}: {why}"
    )


def check_kind(value: Obj, resource: Resource) -> None:
    """Refuses an object of another kind. Raises `Problem` 400."""
    kind = text(value, "kind") or resource.kind
    written = text(value, "apiVersion") or resource.api_version
    if (kind, written) == (resource.kind, resource.api_version):
        return
    version = written.rpartition("/")[2]
    known = written == "v1" and f"core.{kind}" in field_tables.types()
    if known and kind != resource.kind:
        target = f"{resource.schema.partition('.')[0]}.{resource.kind}"
        why = f"converting (v1.{kind}) to ({target}): unknown conversion"
    else:
        why = f'no kind "{kind}" is registered for version "{written}" in scheme "{_SCHEME}"'
    raise _unusable(resource, why, kind, version)


def check_write_options(call: Call) -> None:
    """Refuses unknown values of `dryRun` and `fieldValidation`. Raises `Problem` 422."""
    kind = {"create": "CreateOptions", "patch": "PatchOptions"}.get(call.verb, "UpdateOptions")
    faults: list[field_errors.Fault] = []
    dry_run = call.query.get("dryRun", "")
    if dry_run not in {"", "All"}:
        faults.append(field_errors.unsupported("dryRun", [dry_run], ("All",)))
    validation = call.query.get("fieldValidation", "")
    if validation not in VALIDATIONS:
        faults.append(field_errors.unsupported("fieldValidation", validation, VALIDATIONS))
    if faults:
        raise errors.invalid("meta.k8s.io", kind, "", faults)


def judge(call: Call, resource: Resource, complaints: list[str]) -> tuple[str, ...]:
    """Returns the messages as warnings. Raises `Problem` 400 if the client is strict."""
    validation = call.query.get("fieldValidation", "") or "Warn"
    if validation == "Ignore" or not complaints:
        return ()
    if validation == "Strict":
        raise _unusable(resource, f"strict decoding error: {', '.join(complaints)}")
    return tuple(complaints)
