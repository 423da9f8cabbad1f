"""Events: stored once, in the core form, and also shown in the form of events.k8s.io."""

from collections.abc import Iterator

from pileus_lab.apiserver import field_errors
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import Column, Face, Resource, Rules
from pileus_lab.apiserver.schema.conversion import canonical
from pileus_lab.apiserver.tree import Obj, look, name_of, namespace_of, number, text

_RENAMED = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _RENAMED.items()}
_NEEDED = {
    "reportingComponent": "reportingController",
    "reportingInstance": "reportingInstance",
    "action": "action",
    "reason": "reason",
}
_KEPT = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count"),
    *("type", "eventTime", "action", "related", "reportingComponent", "reportingInstance"),
)
TEXT_LENGTH = 128
NOTE_LENGTH = 1024


def _outward(value: Obj) -> Obj:
    shown = {_RENAMED.get(k, k): v for k, v in value.items()}
    return canonical("events.Event", shown)


def _inward(value: Obj) -> Obj:
    return {_BACK.get(k, k): v for k, v in value.items()}


def _validate_core(value: Obj) -> Iterator[Fault]:
    yield from _namespace_faults(value, "involvedObject")


def _namespace_faults(value: Obj, about: str) -> Iterator[Fault]:
    target = text(value, about, "namespace")
    homes = {target} if target else {"default", "kube-system"}
    if namespace_of(value) not in homes:
        detail = "does not match event.namespace"
        yield field_errors.invalid(f"{about}.namespace", target, detail)


def _validate_new_api(value: Obj) -> Iterator[Fault]:
    """events.k8s.io requires more; objects are in the stored form here."""
    if not text(value, "eventTime"):
        yield field_errors.required("eventTime")
    for stored, shown in _NEEDED.items():
        given = text(value, stored)
        if not given:
            yield field_errors.required(shown)
        elif len(given) > TEXT_LENGTH:
            yield field_errors.invalid(shown, given, f"can have at most {TEXT_LENGTH} characters")
    yield from _content_faults(value)


def _keep_content(new: Obj, old: Obj) -> Iterator[Fault]:
    """In events.k8s.io only the series of an event can change."""
    for name in _KEPT:
        if look(new, name) != look(old, name):
            yield field_errors.immutable(_NEEDED.get(name, name), look(new, name))


def _content_faults(value: Obj) -> Iterator[Fault]:
    if len(text(value, "message")) > NOTE_LENGTH:
        yield field_errors.invalid("note", "", f"can have at most {NOTE_LENGTH} characters")
    if text(value, "type") not in {"Normal", "Warning"}:
        yield field_errors.invalid("type", text(value, "type"), "has invalid value: ")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if look(value, name):
            yield field_errors.invalid(name, look(value, name), "needs to be unset")


def _target(value: Obj) -> str:
    kind, name = (
        text(value, "involvedObject", "kind").lower(),
        text(value, "involvedObject", "name"),
    )
    return f"{kind}/{name}" if name else kind


def _first_seen(value: Obj) -> str:
    return text(value, "firstTimestamp") or text(value, "eventTime")


def _last_seen(value: Obj) -> str:
    series = text(value, "series", "lastObservedTime")
    return series or text(value, "lastTimestamp") or _first_seen(value)


def _count(value: Obj) -> int:
    return number(value, "series", "count") or number(value, "count") or 1


def _source(value: Obj) -> str:
    component = text(value, "source", "component") or text(value, "reportingComponent")
    host = text(value, "source", "host") or text(value, "reportingInstance")
    return f"{component}, {host}" if host else component


_COLUMNS = (
    Column("Last Seen", _last_seen, type="age"),
    Column("Type", lambda o: text(o, "type")),
    Column("Reason", lambda o: text(o, "reason")),
    Column("Object", _target),
    Column("Subobject", lambda o: text(o, "involvedObject", "fieldPath"), wide=True),
    Column("Source", _source, wide=True),
    Column("Message", lambda o: text(o, "message").strip()),
    Column("First Seen", _first_seen, wide=True, type="age"),
    Column("Count", _count, wide=True),
    Column("Name", name_of, wide=True),
)
_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

EVENTS = Resource(
    kind="Event",
    plural="events",
    schema="core.Event",
    creates_on_update=True,
    short_names=("ev",),
    rules=Rules(validate=_validate_core),
    columns=_COLUMNS,
    selectable={
        **{f"involvedObject.{part}": ("involvedObject", part) for part in _ABOUT},
        "reason": ("reason",),
        "type": ("type",),
        "reportingComponent": ("reportingComponent",),
        "source": ("source", "component"),
    },
)

NEW_EVENTS = Resource(
    group="events.k8s.io",
    kind="Event",
    plural="events",
    schema="events.Event",
    creates_on_update=True,
    short_names=("ev",),
    rules=Rules(
        validate=_validate_core, validate_new=_validate_new_api, validate_update=_keep_content
    ),
    columns=_COLUMNS,
    selectable={
        **{f"regarding.{part}": ("involvedObject", part) for part in _ABOUT},
        "reason": ("reason",),
        "type": ("type",),
        "reportingController": ("reportingComponent",),
    },
    face=Face("events", _outward, _inward),
)
