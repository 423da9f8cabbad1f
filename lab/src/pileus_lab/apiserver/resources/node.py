"""Nodes."""

from collections.abc import Iterator

from pileus_lab.apiserver import field_errors, naming
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import (
    AGE,
    NAME,
    NONE,
    STATUS_VERBS,
    UNKNOWN,
    Column,
    Resource,
    Rules,
    Subresource,
)
from pileus_lab.apiserver.tree import (
    Obj,
    branch,
    copied,
    grow,
    items,
    look,
    rows,
    text,
    texts,
    words,
)

NOT_READY = "node.kubernetes.io/not-ready"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ROLE_PREFIX = "node-role.kubernetes.io/"


def _default(value: Obj) -> None:
    status = grow(value, "status")
    if not branch(status, "allocatable") and branch(status, "capacity"):
        status["allocatable"] = copied(status["capacity"])
    _follow_cidr(value)


def _create(value: Obj) -> None:
    """A new node accepts no pods until the node lifecycle controller has seen it ready."""
    spec = grow(value, "spec")
    taints = rows(spec, "taints")
    if not any(t.get("key") == NOT_READY and t.get("effect") == "NoSchedule" for t in taints):
        spec["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]


def _validate(value: Obj) -> Iterator[Fault]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(rows(value, "spec", "taints")):
        yield from _taint_faults(taint, path := f"metadata.taints[{index}]")
        pair = (text(taint, "key"), text(taint, "effect"))
        if pair in seen:
            yield field_errors.duplicate(path, {k: v for k, v in taint.items() if v})
        seen.add(pair)
    yield from _cidr_faults(value)


def _taint_faults(taint: Obj, path: str) -> Iterator[Fault]:
    key, value, effect = (text(taint, part) for part in ("key", "value", "effect"))
    yield from (
        field_errors.invalid(f"{path}.key", key, why) for why in naming.qualified_faults(key)
    )
    yield from (
        field_errors.invalid(f"{path}.value", value, why) for why in naming.value_faults(value)
    )
    if not effect:
        yield field_errors.required(f"{path}.effect")
    elif effect not in EFFECTS:
        yield field_errors.unsupported(f"{path}.effect", effect, EFFECTS)


def _cidr_faults(value: Obj) -> Iterator[Fault]:
    cidrs = texts(value, "spec", "podCIDRs")
    single = text(value, "spec", "podCIDR")
    if single and cidrs and cidrs[0] != single:
        yield field_errors.invalid(
            "spec.podCIDRs", cidrs, "node has inconsistent podCIDR and podCIDRs"
        )


def _follow_cidr(value: Obj) -> None:
    """Keeps the old and the new field of the pod CIDR equal."""
    spec = grow(value, "spec")
    if text(spec, "podCIDR") and not items(spec, "podCIDRs"):
        spec["podCIDRs"] = [text(spec, "podCIDR")]
    elif items(spec, "podCIDRs") and not text(spec, "podCIDR"):
        spec["podCIDR"] = texts(spec, "podCIDRs")[0]


def _validate_update(new: Obj, old: Obj) -> Iterator[Fault]:
    before, after = branch(old, "spec"), branch(new, "spec")
    if items(before, "podCIDRs") and items(before, "podCIDRs") != items(after, "podCIDRs"):
        yield field_errors.forbidden(
            "spec.podCIDRs",
            'node updates may not change podCIDR except from "" to valid',
        )
    if text(before, "providerID") and text(before, "providerID") != text(after, "providerID"):
        yield field_errors.invalid("spec.providerID", None, "field cannot be modified once set")


def _status(value: Obj) -> str:
    ready = next((c for c in rows(value, "status", "conditions") if c.get("type") == "Ready"), None)
    shown = "Unknown"
    if ready is not None:
        shown = "Ready" if ready.get("status") == "True" else "NotReady"
    return shown + (",SchedulingDisabled" if look(value, "spec", "unschedulable") is True else "")


def _roles(value: Obj) -> str:
    labels = words(value, "metadata", "labels")
    roles = {k.removeprefix(_ROLE_PREFIX) for k in labels if k.startswith(_ROLE_PREFIX)}
    roles |= {v for k, v in labels.items() if k == "kubernetes.io/role" and v}
    return ",".join(sorted(roles - {""})) or NONE


def _address(value: Obj, kind: str) -> str:
    addresses = rows(value, "status", "addresses")
    return next((text(a, "address") for a in addresses if a.get("type") == kind), NONE)


def _kernel(value: Obj) -> str:
    architecture = text(value, "status", "nodeInfo", "architecture")
    kernel = text(value, "status", "nodeInfo", "kernelVersion") or UNKNOWN
    return f"{kernel} ({architecture})" if architecture else kernel


def _info(name: str, wide_name: str) -> Column:
    return Column(wide_name, lambda o: text(o, "status", "nodeInfo", name) or UNKNOWN, wide=True)


NODES = Resource(
    kind="Node",
    plural="nodes",
    schema="core.Node",
    namespaced=False,
    short_names=("no",),
    subresources=(Subresource("status", "Node", STATUS_VERBS),),
    rules=Rules(
        default=_default,
        create=_create,
        validate=_validate,
        validate_update=_validate_update,
    ),
    columns=(
        NAME,
        Column("Status", _status),
        Column("Roles", _roles),
        AGE,
        Column("Version", lambda o: text(o, "status", "nodeInfo", "kubeletVersion")),
        Column("Internal-IP", lambda o: _address(o, "InternalIP"), wide=True),
        Column("External-IP", lambda o: _address(o, "ExternalIP"), wide=True),
        _info("osImage", "OS-Image"),
        Column("Kernel-Version", _kernel, wide=True),
        _info("containerRuntimeVersion", "Container-Runtime"),
    ),
    selectable={"spec.unschedulable": ("spec", "unschedulable")},
)
