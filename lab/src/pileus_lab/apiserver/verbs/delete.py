"""Delete: at once, or in steps if there are finalizers or a kubelet."""

from dataclasses import dataclass
from datetime import timedelta

import msgspec

from pileus_lab.apiserver import errors, field_errors
from pileus_lab.apiserver.call import Call, Response
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources.pod import grace_of
from pileus_lab.apiserver.schema import conversion, protobuf
from pileus_lab.apiserver.state import State, stamp
from pileus_lab.apiserver.store import Entry, Key, encode
from pileus_lab.apiserver.tree import Obj, branch, grow, items, look, number, text, texts
from pileus_lab.apiserver.verbs import read
from pileus_lab.apiserver.verbs.request_body import PROTOBUF, media_type

PROTECTED = frozenset({"default", "kube-system", "kube-public"})
POLICIES = ("Foreground", "Background", "Orphan", "nil")
HOLDERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


@dataclass(frozen=True, slots=True)
class Terms:
    """The options of a deletion."""

    grace: int | None = None
    uid: str = ""
    version: str = ""
    dry_run: bool = False


def delete(state: State, call: Call) -> Response:
    terms = _terms(call)
    current = state.shelf(call.resource).entries.get(call.key)
    if current is None:
        raise errors.not_found(call.resource.subject, call.name)
    return _answer(call.resource, *remove(state, call.resource, current, terms))


def delete_collection(state: State, call: Call) -> Response:
    terms = _terms(call)
    chosen, version = read.select(state, call)
    for entry in chosen:
        remove(state, call.resource, entry, terms)
    return read.listed(call, chosen, {"resourceVersion": str(version)})


def evict(state: State, call: Call) -> Response:
    """Evicts a pod; there are no disruption budgets."""
    current = state.shelf(call.resource).entries.get(call.key)
    if current is None:
        raise errors.not_found(call.resource.subject, call.name)
    eviction = _options(call, "policy.Eviction")
    remove(state, call.resource, current, _read(branch(eviction, "deleteOptions"), call))
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return Response(status=201, body=encode({**status, "code": 201}))


def _answer(resource: Resource, entry: Entry, gone: bool) -> Response:  # noqa: FBT001
    if not gone or resource.returns_deleted:
        return Response(body=resource.whole(entry))
    meta = branch(entry.decode(), "metadata")
    details = {
        "name": text(meta, "name"),
        "group": resource.group,
        "kind": resource.plural,
        "uid": text(meta, "uid"),
    }
    status: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    status["details"] = {k: v for k, v in details.items() if v}
    return Response(body=encode(status))


def _terms(call: Call) -> Terms:
    options = _options(call, "meta.DeleteOptions")
    if text(options, "kind") not in {"", "DeleteOptions"}:
        version = text(options, "apiVersion") or "meta.k8s.io/v1"
        raise errors.bad_request(
            f'no kind "{text(options, "kind")}" is registered for version "{version}" '
            'in scheme "pkg/runtime/scheme.go:111"'
        )
    return _read(options, call)


def _options(call: Call, type_name: str) -> Obj:
    if not call.request.body.strip():
        return {}
    try:
        if media_type(call) == PROTOBUF:
            given = protobuf.decode(type_name, call.request.body)
        else:
            given = msgspec.json.decode(call.request.body, type=dict[str, object])
        return conversion.canonical(type_name, given)
    except (msgspec.DecodeError, conversion.Unfit, protobuf.Garbled) as error:
        raise errors.bad_request(f"couldn't decode the options: {error}") from error


def _read(options: Obj, call: Call) -> Terms:
    policy = text(options, "propagationPolicy") or call.query.get("propagationPolicy", "")
    dry_run = items(options, "dryRun") or [v for v in [call.query.get("dryRun")] if v]
    faults: list[field_errors.Fault] = []
    if policy and policy not in POLICIES:
        known = ", ".join(f'"{p}"' for p in POLICIES)
        told = f'Unsupported value: "{policy}": supported values: {known}'
        faults.append(field_errors.Fault("propagationPolicy", "FieldValueNotSupported", told))
    if dry_run and dry_run != ["All"]:
        faults.append(field_errors.unsupported("dryRun", dry_run, ("All",)))
    if faults:
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", faults)
    grace = look(options, "gracePeriodSeconds")
    asked = call.query.get("gracePeriodSeconds", "")
    if grace is None and asked.lstrip("-").isdigit():
        grace = int(asked)
    return Terms(
        grace=grace if isinstance(grace, int) else None,
        uid=text(options, "preconditions", "uid"),
        version=text(options, "preconditions", "resourceVersion"),
        dry_run=bool(dry_run),
    )


def _check(resource: Resource, entry: Entry, value: Obj, terms: Terms) -> None:
    subject = errors.Subject(resource.group, resource.kind)
    uid = text(value, "metadata", "uid")
    if terms.uid and terms.uid != uid:
        why = (
            f"the UID in the precondition ({terms.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(subject, entry.key.name, why)
    if terms.version and terms.version != str(entry.version):
        why = (
            f"the ResourceVersion in the precondition ({terms.version}) does not match the "
            f"ResourceVersion in record ({entry.version}). The object might have been modified"
        )
        raise errors.conflict(subject, entry.key.name, why)
    if resource.kind == "Namespace" and entry.key.name in PROTECTED:
        why = "this namespace may not be deleted"
        raise errors.forbidden(resource.subject, entry.key.name, why)


def remove(state: State, resource: Resource, entry: Entry, terms: Terms) -> tuple[Entry, bool]:
    """Deletes the object, or begins to; returns its last state and whether it is deleted."""
    value = entry.decode()
    _check(resource, entry, value, terms)
    if terms.dry_run:
        return entry, True
    shelf = state.shelf(resource)
    grace = grace_of(value, terms.grace) if resource.kind == "Pod" else 0
    held = texts(value, "metadata", "finalizers") or texts(value, "spec", "finalizers")
    if not held and not grace:
        gone = state.store.remove(shelf, entry.key, value)
        after_removal(state, resource, entry.key.namespace)
        return gone, True
    if text(value, "metadata", "deletionTimestamp") and not _shortens(value, grace):
        marked = entry
    else:
        _mark(state, resource, value, grace)
        marked = state.store.write(shelf, entry.key, value)
    if resource.kind == "Namespace":
        return _empty(state, marked)
    return marked, False


def _shortens(value: Obj, grace: int) -> bool:
    return grace < number(value, "metadata", "deletionGracePeriodSeconds")


def _mark(state: State, resource: Resource, value: Obj, grace: int) -> None:
    meta = grow(value, "metadata")
    meta["deletionTimestamp"] = stamp(state.clock.now() + timedelta(seconds=grace))
    meta["deletionGracePeriodSeconds"] = grace
    if number(meta, "generation"):
        meta["generation"] = number(meta, "generation") + 1
    if resource.kind == "Namespace":
        meta.pop("deletionGracePeriodSeconds")
        grow(value, "status")["phase"] = "Terminating"


def _empty(state: State, namespace: Entry) -> tuple[Entry, bool]:
    """Deletes the contents of a namespace; objects with finalizers keep it."""
    name = namespace.key.name
    for resource in state.catalog.namespaced:
        shelf = state.shelf(resource)
        for key in [key for key in shelf.keys if key.namespace == name]:
            if key in shelf.entries:
                remove(state, resource, shelf.entries[key], Terms())
    left = state.store.shelf("namespaces").entries.get(namespace.key)
    if left is not None:
        after_removal(state, None, name)
    return namespace, False


def after_removal(state: State, resource: Resource | None, namespace: str) -> None:
    """Deletes a namespace that is being deleted if this was its last object."""
    if resource is not None and not resource.namespaced:
        return
    shelf = state.store.shelf("namespaces")
    home = shelf.entries.get(Key("", namespace))
    if home is None:
        return
    value = home.decode()
    if text(value, "status", "phase") != "Terminating" or _holds_anything(state, namespace):
        return
    spec = grow(value, "spec")
    rest = [f for f in texts(spec, "finalizers") if f != "kubernetes"]
    spec["finalizers"] = rest
    if rest or texts(value, "metadata", "finalizers"):
        state.store.write(shelf, home.key, value)
    else:
        state.store.remove(shelf, home.key, value)


def _holds_anything(state: State, namespace: str) -> bool:
    return any(
        key.namespace == namespace
        for resource in state.catalog.namespaced
        for key in state.shelf(resource).keys
    )
