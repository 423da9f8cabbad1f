"""Get and list: selectors, consistent pages, and requested versions."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Iterator, Mapping

import msgspec

from pileus_lab.apiserver import errors, field_errors
from pileus_lab.apiserver.call import Call, Response
from pileus_lab.apiserver.selector import FieldSelector, LabelSelector, parse_fields, parse_labels
from pileus_lab.apiserver.state import State
from pileus_lab.apiserver.store import Entry, Key, Shelf, encode
from pileus_lab.apiserver.tree import Obj

NOT_OLDER = "NotOlderThan"
EXACT = "Exact"


class Chooser:
    """Decides which objects a client selects."""

    def __init__(self, call: Call) -> None:
        self._resource = call.resource
        self._namespace = call.namespace
        self._labels: LabelSelector = parse_labels(call.query.get("labelSelector", ""))
        self._fields: FieldSelector = parse_fields(
            call.query.get("fieldSelector", ""),
            call.resource.fields,
            special=bool(call.resource.selectable),
        )

    @property
    def name(self) -> str | None:
        """The one name that can match, if there is only one."""
        return self._fields.exact("metadata.name")

    @property
    def selects(self) -> bool:
        return bool(self._labels.requirements or self._fields.terms)

    def matches(self, entry: Entry | None) -> bool:
        if entry is None or (self._namespace and entry.key.namespace != self._namespace):
            return False
        if self._labels.requirements and not self._labels.matches(entry.labels):
            return False
        if not self._fields.terms:
            return True
        value = entry.decode() if self._needs_body() else _bare(entry)
        return self._fields.matches(lambda name: self._resource.select(value, name))

    def _needs_body(self) -> bool:
        return any(not name.startswith("metadata.") for name, _, _ in self._fields.terms)


def _bare(entry: Entry) -> Obj:
    return {"metadata": {"name": entry.key.name, "namespace": entry.key.namespace}}


def find(state: State, call: Call) -> Entry:
    """Returns the object that the call names. Raises `Problem` 404, 504."""
    version = whole_number(call.query, "resourceVersion")
    if version > state.store.version:
        raise errors.version_too_large(version, state.store.version)
    entry = state.shelf(call.resource).entries.get(call.key)
    if entry is None:
        raise errors.not_found(call.resource.subject, call.name)
    return entry


def get(state: State, call: Call) -> Response:
    return Response(body=call.resource.whole(find(state, call)))


def listing(state: State, call: Call) -> Response:
    chosen, version, more = page(state, call)
    meta: Obj = {"resourceVersion": str(version)}
    if more is not None:
        meta["continue"] = more.token
        if more.remaining is not None:
            meta["remainingItemCount"] = more.remaining
    return listed(call, chosen, meta)


def listed(call: Call, chosen: list[Entry], meta: Obj) -> Response:
    resource = call.resource
    head = f'{{"kind":"{resource.kind}List","apiVersion":"{resource.api_version}","metadata":'
    if resource.face is None:
        body = b",".join([entry.raw for entry in chosen])
    else:
        body = b",".join([resource.item(entry) for entry in chosen])
    return Response(body=b"".join((head.encode(), encode(meta), b',"items":[', body, b"]}")))


class More(msgspec.Struct):
    """Where the next page begins."""

    token: str
    remaining: int | None


class _Token(msgspec.Struct, rename="camel"):
    version: int
    """Version of the first page; below 0: continue with the current objects."""
    namespace: str
    name: str


def select(state: State, call: Call) -> tuple[list[Entry], int]:
    """Returns all selected objects and the version."""
    chosen, version, _ = page(state, call)
    return chosen, version


def page(state: State, call: Call) -> tuple[list[Entry], int, More | None]:
    """Returns one page, its version, and where the next one begins."""
    check_list_options(call)
    chooser, shelf = Chooser(call), state.shelf(call.resource)
    limit = whole_number(call.query, "limit")
    start, version = _start(state, shelf, call)
    found: list[Entry] = []
    candidates = _candidates(shelf, chooser, start, version, call.namespace)
    for entry in candidates:
        if not chooser.matches(entry):
            continue
        found.append(entry)
        if limit and len(found) == limit:
            return found, version, _more(chooser, entry, version, candidates)
    return found, version, None


def _more(chooser: Chooser, last: Entry, version: int, rest: Iterator[Entry]) -> More | None:
    left = [entry for entry in rest if chooser.matches(entry)]
    if not left:
        return None
    token = _encode(_Token(version, last.key.namespace, last.key.name))
    return More(token, None if chooser.selects else len(left))


def _candidates(
    shelf: Shelf, chooser: Chooser, start: Key | None, version: int, namespace: str
) -> Iterator[Entry]:
    """Yields the objects at that version, in order, after `start`."""
    differing = shelf.at(version)
    if chooser.name is not None and namespace and not differing:
        one = shelf.entries.get(Key(namespace, chooser.name))
        return iter([one] if one and (start is None or one.key > start) else [])
    keys = shelf.keys
    if differing:
        keys = sorted({*keys, *differing})
    first = bisect_right(keys, start) if start is not None else 0
    if namespace:
        first = max(first, bisect_right(keys, Key(namespace, "")))
    return _entries(shelf, keys[first:], differing, namespace)


def _entries(
    shelf: Shelf, keys: list[Key], differing: Mapping[Key, Entry | None], namespace: str
) -> Iterator[Entry]:
    for key in keys:
        if namespace and key.namespace != namespace:
            return
        entry = differing[key] if key in differing else shelf.entries.get(key)
        if entry is not None:
            yield entry


def _start(state: State, shelf: Shelf, call: Call) -> tuple[Key | None, int]:
    """Returns the key after which to begin, and the version to show."""
    current = state.store.version
    written = call.query.get("continue", "")
    if written:
        if call.query.get("resourceVersion", "0") not in {"", "0"}:
            told = "specifying resource version is not allowed when using continue"
            raise errors.bad_request(told)
        token = _decode(written)
        if token.version < 0:
            return Key(token.namespace, token.name), current
        if token.version < shelf.forgotten:
            raise _lapsed(token)
        return Key(token.namespace, token.name), token.version
    version = whole_number(call.query, "resourceVersion")
    if version > current:
        raise errors.version_too_large(version, current)
    if call.query.get("resourceVersionMatch") == EXACT and version:
        if version < shelf.forgotten:
            raise errors.expired("The resourceVersion for the provided list is too old.")
        return None, version
    return None, current


def _lapsed(token: _Token) -> errors.Problem:
    again = _encode(_Token(-1, token.namespace, token.name))
    return errors.expired(
        "The provided continue parameter is too old to display a consistent list result. You can "
        "start a new list without the continue parameter, or use the continue token in this "
        "response to retrieve the remainder of the results. Continuing with the provided token "
        "results in an inconsistent list - objects that were created, modified, or deleted "
        "between the time the first chunk was returned and now may show up in the list.",
        metadata={"continue": again},
    )


def _encode(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()


def _decode(written: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(written + "=" * (-len(written) % 4))
        return msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError) as error:
        told = f"invalid continue token: continue key is not valid: {error}"
        raise errors.bad_request(told) from error


def whole_number(query: Mapping[str, str], name: str) -> int:
    """Returns a number from the query, 0 if it is missing. Raises `Problem` 400."""
    written = query.get(name, "") or "0"
    if written.isascii() and written.isdigit():
        return int(written)
    if name == "resourceVersion":
        raise errors.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{written}": '
            f'strconv.ParseUint: parsing "{written}": invalid syntax'
        )
    raise errors.bad_request(f'strconv.ParseInt: parsing "{written}": invalid syntax')


def check_list_options(call: Call) -> None:
    """Refuses invalid combinations. Raises `Problem` 422."""
    faults = list(_option_faults(call))
    if faults:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", faults)


def _option_faults(call: Call) -> Iterator[field_errors.Fault]:
    query, path = call.query, "resourceVersionMatch"
    match, version = query.get(path, ""), query.get("resourceVersion", "")
    if call.verb == "watch":
        yield from _watch_faults(query, match)
        return
    if "sendInitialEvents" in query:
        detail = "sendInitialEvents is forbidden for list"
        yield field_errors.forbidden("sendInitialEvents", detail)
    if not match:
        return
    if not version:
        detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        yield field_errors.forbidden(path, detail)
    if query.get("continue"):
        detail = "resourceVersionMatch is forbidden when continue is provided"
        yield field_errors.forbidden(path, detail)
    if match not in {EXACT, NOT_OLDER}:
        yield field_errors.unsupported(path, match, (EXACT, NOT_OLDER, ""))
    if match == EXACT and version == "0":
        detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        yield field_errors.forbidden(path, detail)


def _watch_faults(query: Mapping[str, str], match: str) -> Iterator[field_errors.Fault]:
    initial = query.get("sendInitialEvents")
    if initial is not None and match != NOT_OLDER:
        detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        yield field_errors.forbidden("resourceVersionMatch", detail)
    elif initial is None and match:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        yield field_errors.forbidden("resourceVersionMatch", detail)
