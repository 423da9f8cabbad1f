"""PersistentVolumes, PersistentVolumeClaims, StorageClasses, VolumeAttachments, CSIDrivers."""

from collections.abc import Iterable, Iterator

from pileus_lab.apiserver import field_errors, naming
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import (
    AGE,
    NAME,
    STATUS_VERBS,
    Column,
    Resource,
    Rules,
    Subresource,
)
from pileus_lab.apiserver.schema.conversion import amount
from pileus_lab.apiserver.tree import Obj, branch, clone, default, grow, look, text, texts, words

GROUP = "storage.k8s.io"
MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
POLICIES = ("Delete", "Recycle", "Retain")
CLASS_POLICIES = ("Delete", "Retain")
BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
VOLUME_MODES = ("Block", "Filesystem")
LONGEST_DRIVER = 63
LONGEST_ERROR = 1024
UNSET = "<unset>"
_NO_SOURCE = frozenset({
    *("capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName"),
    *("mountOptions", "volumeMode", "nodeAffinity", "volumeAttributesClassName"),
})
"""The fields of a PersistentVolume's spec that are not its source."""


def _protect(value: Obj, finalizer: str) -> None:
    """Adds the finalizer of the admission plugin StorageObjectInUseProtection."""
    present = texts(value, "metadata", "finalizers")
    if finalizer not in present:
        grow(value, "metadata")["finalizers"] = [*present, finalizer]


def _default_volume(value: Obj) -> None:
    default(grow(value, "spec"), persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")
    default(grow(value, "status"), phase="Pending")


def _new_volume(value: Obj) -> None:
    moment = text(value, "metadata", "creationTimestamp")
    value["status"] = {"phase": "Pending", "lastPhaseTransitionTime": moment}
    _protect(value, "kubernetes.io/pv-protection")


def _mode_faults(modes: Iterable[str], path: str) -> Iterator[Fault]:
    for mode in modes:
        if mode not in MODES:
            yield field_errors.unsupported(path, mode, MODES)
    known = {mode for mode in modes if mode in MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        yield field_errors.forbidden(path, detail)


def _size_faults(size: str, path: str) -> Iterator[Fault]:
    if amount(size) <= 0:
        yield field_errors.invalid(path, size, "must be greater than zero")


def _validate_volume(value: Obj) -> Iterator[Fault]:
    spec = branch(value, "spec")
    if not texts(spec, "accessModes"):
        yield field_errors.required("spec.accessModes")
    yield from _mode_faults(texts(spec, "accessModes"), "spec.accessModes")
    capacity = words(spec, "capacity")
    if not capacity:
        yield field_errors.required("spec.capacity")
    if capacity.keys() != {"storage"}:
        yield field_errors.unsupported("spec.capacity", capacity or None, ("storage",))
    for name, size in capacity.items():
        yield from _size_faults(size, f"spec.capacity[{name}]")
    policy = text(spec, "persistentVolumeReclaimPolicy")
    if policy not in POLICIES:
        yield field_errors.unsupported("spec.persistentVolumeReclaimPolicy", policy, POLICIES)
    yield from _source_faults(spec)


def _source_faults(spec: Obj) -> Iterator[Fault]:
    sources = spec.keys() - _NO_SOURCE
    if not sources:
        yield field_errors.required("spec", "must specify a volume type")
    for extra in sorted(sources)[1:]:
        yield field_errors.forbidden(f"spec.{extra}", "may not specify more than 1 volume type")
    if "csi" in sources:
        yield from _driver_faults(text(spec, "csi", "driver"), "spec.csi.driver")
        if not text(spec, "csi", "volumeHandle"):
            yield field_errors.required("spec.csi.volumeHandle")


def _driver_faults(driver: str, path: str) -> Iterator[Fault]:
    if not driver:
        yield field_errors.required(path)
        return
    if len(driver) > LONGEST_DRIVER:
        yield field_errors.too_long(path, LONGEST_DRIVER)
    faults = naming.subdomain_faults(driver.lower())
    yield from (field_errors.invalid(path, driver, why) for why in faults)


def _validate_volume_update(new: Obj, old: Obj) -> Iterator[Fault]:
    before, after = (branch(each, "spec") for each in (old, new))
    sources = [{k: v for k, v in each.items() if k not in _NO_SOURCE} for each in (before, after)]
    if sources[0] != sources[1]:
        detail = "spec.persistentvolumesource is immutable after creation"
        yield field_errors.forbidden("spec.persistentvolumesource", detail)
    if look(before, "volumeMode") != look(after, "volumeMode"):
        yield field_errors.immutable("volumeMode", look(after, "volumeMode"))
    affinity = look(before, "nodeAffinity")
    if affinity is not None and affinity != look(after, "nodeAffinity"):
        yield field_errors.immutable("nodeAffinity", look(after, "nodeAffinity"))


def _modes(modes: Iterable[str]) -> str:
    known = set(modes)
    return ",".join(short for mode, short in SHORT_MODES.items() if mode in known)


def _phase(value: Obj) -> str:
    if text(value, "metadata", "deletionTimestamp"):
        return "Terminating"
    return text(value, "status", "phase")


def _claim(value: Obj) -> str:
    claim = look(value, "spec", "claimRef")
    return "" if claim is None else f"{text(claim, 'namespace')}/{text(claim, 'name')}"


def _spec(title: str, name: str, missing: str = "", *, wide: bool = False) -> Column:
    return Column(title, lambda o: text(o, "spec", name) or missing, wide=wide)


PERSISTENT_VOLUMES = Resource(
    kind="PersistentVolume",
    plural="persistentvolumes",
    schema="core.PersistentVolume",
    returns_deleted=True,
    namespaced=False,
    short_names=("pv",),
    subresources=(Subresource("status", "PersistentVolume", STATUS_VERBS),),
    rules=Rules(
        default=_default_volume,
        create=_new_volume,
        validate=_validate_volume,
        validate_update=_validate_volume_update,
    ),
    columns=(
        NAME,
        Column("Capacity", lambda o: text(o, "spec", "capacity", "storage") or "0"),
        Column("Access Modes", lambda o: _modes(texts(o, "spec", "accessModes"))),
        _spec("Reclaim Policy", "persistentVolumeReclaimPolicy"),
        Column("Status", _phase),
        Column("Claim", _claim),
        _spec("StorageClass", "storageClassName"),
        _spec("VolumeAttributesClass", "volumeAttributesClassName", UNSET),
        Column("Reason", lambda o: text(o, "status", "reason")),
        AGE,
        _spec("VolumeMode", "volumeMode", UNSET, wide=True),
    ),
    selectable={"name": ("metadata", "name")},
)


def _default_claim(value: Obj) -> None:
    default(grow(value, "spec"), volumeMode="Filesystem")
    default(grow(value, "status"), phase="Pending")


def _new_claim(value: Obj) -> None:
    value["status"] = {"phase": "Pending"}
    _protect(value, "kubernetes.io/pvc-protection")


def requested(claim: Obj) -> str:
    """Returns the requested size of a claim."""
    return text(claim, "spec", "resources", "requests", "storage")


def _validate_claim(value: Obj) -> Iterator[Fault]:
    spec = branch(value, "spec")
    if not texts(spec, "accessModes"):
        yield field_errors.required("spec.accessModes", "at least 1 access mode is required")
    yield from _mode_faults(texts(spec, "accessModes"), "spec.accessModes")
    size = requested(value)
    if not size:
        yield field_errors.required("spec.resources[storage]")
    else:
        yield from _size_faults(size, "spec.resources[storage]")
    name = text(spec, "storageClassName")
    if name:
        faults = naming.subdomain_faults(name)
        yield from (field_errors.invalid("spec.storageClassName", name, why) for why in faults)
    mode = text(spec, "volumeMode")
    if mode not in VOLUME_MODES:
        yield field_errors.unsupported("spec.volumeMode", mode, VOLUME_MODES)


def _validate_claim_update(new: Obj, old: Obj) -> Iterator[Fault]:
    before, after = (clone(branch(each, "spec")) for each in (old, new))
    if not text(before, "volumeName"):
        before.pop("volumeName", None)
        after.pop("volumeName", None)
    if text(new, "status", "phase") == "Bound":
        for each in (before, after):
            branch(each, "resources", "requests").pop("storage", None)
            each.pop("volumeAttributesClassName", None)
    if before != after:
        detail = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        yield field_errors.forbidden("spec", detail)
    size = amount(requested(new))
    if size < amount(requested(old)) and size <= amount(
        text(old, "status", "capacity", "storage") or "0"
    ):
        detail = "field can not be less than status.capacity"
        yield field_errors.forbidden("spec.resources.requests.storage", detail)


def _claim_capacity(value: Obj) -> str:
    if not text(value, "spec", "volumeName"):
        return ""
    return text(value, "status", "capacity", "storage") or "0"


def _claim_modes(value: Obj) -> str:
    return (
        _modes(texts(value, "status", "accessModes")) if text(value, "spec", "volumeName") else ""
    )


PERSISTENT_VOLUME_CLAIMS = Resource(
    kind="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    schema="core.PersistentVolumeClaim",
    returns_deleted=True,
    short_names=("pvc",),
    subresources=(Subresource("status", "PersistentVolumeClaim", STATUS_VERBS),),
    rules=Rules(
        default=_default_claim,
        create=_new_claim,
        validate=_validate_claim,
        validate_update=_validate_claim_update,
    ),
    columns=(
        NAME,
        Column("Status", _phase),
        _spec("Volume", "volumeName"),
        Column("Capacity", _claim_capacity),
        Column("Access Modes", _claim_modes),
        _spec("StorageClass", "storageClassName"),
        _spec("VolumeAttributesClass", "volumeAttributesClassName", UNSET),
        AGE,
        _spec("VolumeMode", "volumeMode", UNSET, wide=True),
    ),
    selectable={"name": ("metadata", "name")},
)


def _default_class(value: Obj) -> None:
    default(value, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _validate_class(value: Obj) -> Iterator[Fault]:
    provisioner = text(value, "provisioner")
    if not provisioner:
        yield field_errors.required("provisioner")
    else:
        faults = naming.qualified_faults(provisioner.lower())
        yield from (field_errors.invalid("provisioner", provisioner, why) for why in faults)
    policy = text(value, "reclaimPolicy")
    if policy and policy not in CLASS_POLICIES:
        yield field_errors.unsupported("reclaimPolicy", policy, CLASS_POLICIES)
    mode = text(value, "volumeBindingMode")
    if mode not in BINDING_MODES:
        yield field_errors.unsupported("volumeBindingMode", mode, BINDING_MODES)


def _validate_class_update(new: Obj, old: Obj) -> Iterator[Fault]:
    for name in ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"):
        if look(new, name) != look(old, name):
            yield field_errors.immutable(name, look(new, name))


STORAGE_CLASSES = Resource(
    group=GROUP,
    kind="StorageClass",
    plural="storageclasses",
    schema="storage.StorageClass",
    returns_deleted=True,
    namespaced=False,
    short_names=("sc",),
    rules=Rules(
        default=_default_class, validate=_validate_class, validate_update=_validate_class_update
    ),
    columns=(
        NAME,
        Column("Provisioner", lambda o: text(o, "provisioner")),
        Column("ReclaimPolicy", lambda o: text(o, "reclaimPolicy")),
        Column("VolumeBindingMode", lambda o: text(o, "volumeBindingMode")),
        Column("AllowVolumeExpansion", lambda o: look(o, "allowVolumeExpansion") is True),
        AGE,
    ),
)


def _new_attachment(value: Obj) -> None:
    value["status"] = {"attached": False}


def _validate_attachment(value: Obj) -> Iterator[Fault]:
    yield from _driver_faults(text(value, "spec", "attacher"), "spec.attacher")
    source = branch(value, "spec", "source")
    if not source.keys() & {"persistentVolumeName", "inlineVolumeSpec"}:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        yield field_errors.required("spec.source", detail)
    node = text(value, "spec", "nodeName")
    faults = naming.subdomain_faults(node)
    yield from (field_errors.invalid("spec.nodeName", node, why) for why in faults)
    for part in ("attachError", "detachError"):
        if len(text(value, "status", part, "message").encode()) > LONGEST_ERROR:
            yield field_errors.too_long(f"status.{part}.message", LONGEST_ERROR)


def _validate_attachment_update(new: Obj, old: Obj) -> Iterator[Fault]:
    if look(new, "spec") != look(old, "spec"):
        yield field_errors.immutable("spec", look(new, "spec"))


VOLUME_ATTACHMENTS = Resource(
    group=GROUP,
    kind="VolumeAttachment",
    plural="volumeattachments",
    schema="storage.VolumeAttachment",
    returns_deleted=True,
    namespaced=False,
    needs_version=True,
    status_is_apart=True,
    subresources=(Subresource("status", "VolumeAttachment", STATUS_VERBS),),
    rules=Rules(
        create=_new_attachment,
        validate=_validate_attachment,
        validate_update=_validate_attachment_update,
    ),
    columns=(
        NAME,
        _spec("Attacher", "attacher"),
        Column("PV", lambda o: text(o, "spec", "source", "persistentVolumeName")),
        _spec("Node", "nodeName"),
        Column("Attached", lambda o: look(o, "status", "attached") is True, type="boolean"),
        AGE,
    ),
)


def _default_driver(value: Obj) -> None:
    default(
        grow(value, "spec"),
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        volumeLifecycleModes=["Persistent"],
        requiresRepublish=False,
        seLinuxMount=False,
    )


def _driver_flag(title: str, name: str) -> Column:
    return Column(title, lambda o: look(o, "spec", name) is True, type="boolean")


CSI_DRIVERS = Resource(
    group=GROUP,
    kind="CSIDriver",
    plural="csidrivers",
    schema="storage.CSIDriver",
    returns_deleted=True,
    namespaced=False,
    counts_generations=True,
    rules=Rules(default=_default_driver),
    columns=(
        NAME,
        _driver_flag("AttachRequired", "attachRequired"),
        _driver_flag("PodInfoOnMount", "podInfoOnMount"),
        _driver_flag("StorageCapacity", "storageCapacity"),
        Column("TokenRequests", lambda _: UNSET),
        _driver_flag("RequiresRepublish", "requiresRepublish"),
        Column("Modes", lambda o: ",".join(texts(o, "spec", "volumeLifecycleModes"))),
        AGE,
    ),
)
