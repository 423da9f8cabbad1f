"""What every write passes before it is stored: metadata, defaults, rules, validation."""

from pileus_lab.apiserver import errors, field_errors, naming
from pileus_lab.apiserver.allocation import Unallocated
from pileus_lab.apiserver.call import Call
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources.storage import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    requested,
)
from pileus_lab.apiserver.schema.conversion import amount
from pileus_lab.apiserver.state import State
from pileus_lab.apiserver.store import Entry, Key
from pileus_lab.apiserver.tree import (
    Obj,
    branch,
    clone,
    copied,
    grow,
    look,
    name_of,
    namespace_of,
    number,
    text,
    texts,
)

RETRIES = 8
"""How many times another name is tried if a generated one is taken."""
_SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def check_namespace(state: State, resource: Resource, namespace: str, name: str) -> None:
    """Refuses a new object in a namespace that is missing or being deleted. Raises `Problem`."""
    if not resource.namespaced or "list" not in resource.verbs:
        return
    home = state.store.shelf("namespaces").entries.get(Key("", namespace))
    if home is None:
        raise errors.not_found(errors.Subject("", "namespaces"), namespace)
    if text(home.decode(), "status", "phase") == "Terminating":
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        refused = errors.forbidden(resource.subject, name, why)
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        (refused.details or {})["causes"] = [cause]
        raise refused


def match_namespace(value: Obj, call: Call) -> None:
    given = namespace_of(value)
    if call.resource.namespaced:
        if given and given != call.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        grow(value, "metadata")["namespace"] = call.namespace
    elif given:
        branch(value, "metadata").pop("namespace")


def new_object(state: State, call: Call, value: Obj) -> Key:
    """Prepares a new object and returns its key. Raises `Problem`."""
    resource, meta = call.resource, grow(value, "metadata")
    if text(meta, "resourceVersion"):
        told = "resourceVersion should not be set on objects to be created"
        raise errors.Problem(500, "", told)
    match_namespace(value, call)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        meta.pop(name, None)
    meta["uid"] = state.new_uid()
    meta["creationTimestamp"] = state.now()
    if resource.counts_generations:
        meta["generation"] = 1
    prefix = text(meta, "generateName")
    if prefix and not text(meta, "name"):
        meta["name"] = _generate(state, call, prefix)
    rules = resource.rules
    rules.default(value)
    rules.create(value)
    name_faults = rules.name_faults or naming.subdomain_faults
    faults = list(naming.check_metadata(value, name_faults(name_of(value))))
    faults += [*rules.validate_new(value), *rules.validate(value)]
    _raise_faults(resource, value, faults)
    _allocate(state, resource, value, None)
    return Key(namespace_of(value), name_of(value))


def _generate(state: State, call: Call, prefix: str) -> str:
    for _ in range(RETRIES):
        name = state.generate_name(prefix)
        if Key(call.namespace, name) not in state.shelf(call.resource).entries:
            return name
    return state.generate_name(prefix)


def changed_object(state: State, call: Call, new: Obj, old: Obj) -> None:
    """Prepares the object that replaces the old one. Raises `Problem`."""
    resource, rules = call.resource, call.resource.rules
    match_namespace(new, call)
    _check_identity(call, new, old)
    _keep_system_fields(resource, new, old)
    _isolate(call, new, old)
    rules.default(new)
    if call.subresource == "":
        rules.update(new, old)
    if resource.counts_generations and _differs(new, old):
        grow(new, "metadata")["generation"] = number(old, "metadata", "generation") + 1
    faults = [*naming.check_metadata(new, ()), *_finalizer_faults(new, old)]
    if call.subresource == "":
        faults += rules.validate_update(new, old)
    _raise_faults(resource, new, faults + list(rules.validate(new)))
    if resource is PERSISTENT_VOLUME_CLAIMS and call.subresource == "":
        _check_growth(state, new, old)
    if resource is PERSISTENT_VOLUMES and call.subresource == "status":
        _note_phase(state, new, old)
    _allocate(state, resource, new, old)


def _note_phase(state: State, new: Obj, old: Obj) -> None:
    before, after = branch(old, "status"), branch(new, "status")
    is_noted = look(before, "lastPhaseTransitionTime") != look(after, "lastPhaseTransitionTime")
    if text(before, "phase") != text(after, "phase") and not is_noted:
        after["lastPhaseTransitionTime"] = state.now()


def _check_growth(state: State, new: Obj, old: Obj) -> None:
    """Refuses a larger claim unless it is bound and its class allows it. Raises `Problem` 403."""
    if amount(requested(new)) <= amount(requested(old)):
        return
    subject = PERSISTENT_VOLUME_CLAIMS.subject
    if text(old, "status", "phase") != "Bound":
        why = "Only bound persistent volume claims can be expanded"
        raise errors.forbidden(subject, name_of(new), why)
    name = text(new, "spec", "storageClassName")
    found = state.shelf(STORAGE_CLASSES).entries.get(Key("", name))
    if found is None or look(found.decode(), "allowVolumeExpansion") is not True:
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that "
            "provisions the pvc must support resize"
        )
        raise errors.forbidden(subject, name_of(new), why)


def check_name(call: Call, value: Obj) -> None:
    """Refuses an object whose name is not that of the URL. Raises `Problem` 400."""
    name = name_of(value)
    if not name:
        raise errors.bad_request(
            f"the name of the object ({call.name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if name != call.name:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.name})"
        )


def _check_identity(call: Call, new: Obj, old: Obj) -> None:
    check_name(call, new)
    name = name_of(new)
    uid, known = text(new, "metadata", "uid"), text(old, "metadata", "uid")
    if uid and uid != known and call.verb == "patch":
        raise call.resource.unfit(name, [field_errors.immutable("metadata.uid", uid)])
    if uid and uid != known:
        place = "/".join(filter(None, (call.resource.plural, call.namespace, name)))
        why = (
            f"StorageError: invalid object, Code: 4, Key: /registry/{place}, ResourceVersion: 0, "
            "AdditionalErrorMsg: Precondition failed: UID in precondition: "
            f"{uid}, UID in object meta: {known}"
        )
        raise errors.conflict(call.resource.subject, name, why)


def check_version(call: Call, new: Obj, current: Entry) -> None:
    """Refuses a write that is based on another version than the current one."""
    given = text(new, "metadata", "resourceVersion")
    if not given and call.resource.needs_version and call.verb == "update":
        fault = field_errors.invalid(
            "metadata.resourceVersion", 0, "must be specified for an update"
        )
        resource = call.resource
        raise errors.invalid(resource.group, resource.plural, call.name, [fault])
    if given and not given.isdigit():
        told = f'strconv.ParseUint: parsing "{given}": invalid syntax'
        raise errors.Problem(500, "", told)
    if given and int(given) not in {0, current.version}:
        raise errors.stale(call.resource.subject, call.name)


def _keep_system_fields(resource: Resource, new: Obj, old: Obj) -> None:
    """Fields that only the server sets stay unchanged."""
    meta, known = grow(new, "metadata"), branch(old, "metadata")
    for name in (*_SYSTEM, "generateName"):
        if name in known:
            meta[name] = known[name]
        else:
            meta.pop(name, None)
    if resource.counts_generations:
        meta["generation"] = known.get("generation", 1)


def _isolate(call: Call, new: Obj, old: Obj) -> None:
    """A write to the status changes nothing else, and vice versa."""
    resource = call.resource
    if call.subresource == "status":
        for part in {*new, *old} - {"metadata", "status"}:
            _take(new, old, part)
        grow(new, "metadata")["ownerReferences"] = copied(
            look(old, "metadata", "ownerReferences") or []
        )
        if not branch(new, "metadata").get("ownerReferences"):
            branch(new, "metadata").pop("ownerReferences", None)
        if resource.status_is_apart:
            for part in ("labels", "annotations", "finalizers"):
                _take(grow(new, "metadata"), branch(old, "metadata"), part)
    elif resource.has_status:
        _take(new, old, "status")


def _take(new: Obj, old: Obj, part: str) -> None:
    if part in old:
        new[part] = copied(old[part])
    else:
        new.pop(part, None)


def _differs(new: Obj, old: Obj) -> bool:
    ignored = {"metadata", "status"}
    before = {k: v for k, v in old.items() if k not in ignored}
    return before != {k: v for k, v in new.items() if k not in ignored}


def _finalizer_faults(new: Obj, old: Obj) -> list[Fault]:
    if not text(old, "metadata", "deletionTimestamp"):
        return []
    known = texts(old, "metadata", "finalizers")
    added = sorted(set(texts(new, "metadata", "finalizers")) - set(known))
    if not added:
        return []
    shown = ", ".join(f'"{name}"' for name in added)
    detail = (
        "no new finalizers can be added if the object is being deleted, found new finalizers "
        f"[]string{{{shown}}}"
    )
    return [field_errors.forbidden("metadata.finalizers", detail)]


def _raise_faults(resource: Resource, value: Obj, faults: list[Fault]) -> None:
    if faults:
        raise resource.unfit(name_of(value), faults)


def _allocate(state: State, resource: Resource, new: Obj, old: Obj | None) -> None:
    if resource.plural != "services":
        return
    try:
        state.allocator.admit(new, clone(old) if old else None)
    except Unallocated as error:
        raise resource.unfit(name_of(new), error.faults) from error
