"""Pods without kubelet and scheduler, and their eviction."""

from collections.abc import Iterator

from pileus_lab.apiserver import field_errors, naming
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import (
    AGE,
    NAME,
    NONE,
    STATUS_VERBS,
    Column,
    Resource,
    Rules,
    Subresource,
)
from pileus_lab.apiserver.tree import (
    Obj,
    branch,
    clone,
    copied,
    default,
    grow,
    look,
    number,
    rows,
    text,
)

TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
FILE_MODE = 0o644
DONE = frozenset({"Succeeded", "Failed"})
_VOLUME_MODES = ("configMap", "secret", "downwardAPI", "projected")


def _default(value: Obj) -> None:
    spec = grow(value, "spec")
    default(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
        enableServiceLinks=True,
    )
    _follow_address(branch(value, "status"))
    for container in (*rows(spec, "containers"), *rows(spec, "initContainers")):
        _default_container(container)
    for volume in rows(spec, "volumes"):
        _default_volume(volume)


def _follow_address(status: Obj) -> None:
    """Keeps the old and the new field of the pod's address equal; the old one wins."""
    single, several = text(status, "podIP"), rows(status, "podIPs")
    if single and (not several or text(several[0], "ip") != single):
        status["podIPs"] = [{"ip": single}]
    elif several:
        status["podIP"] = text(several[0], "ip")


def _default_container(container: Obj) -> None:
    image = text(container, "image")
    tag = image.rpartition("/")[2].partition(":")[2]
    latest = "@" not in image and tag in {"", "latest"}
    default(
        container,
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if latest else "IfNotPresent",
    )
    for port in rows(container, "ports"):
        default(port, protocol="TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _default_probe(branch(container, probe))
    limits = branch(container, "resources", "limits")
    if limits:
        default(grow(container, "resources", "requests"), **limits)


def _default_probe(probe: Obj) -> None:
    default(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    if "httpGet" in probe:
        default(branch(probe, "httpGet"), path="/", scheme="HTTP")


def _default_volume(volume: Obj) -> None:
    if len(volume) == 1:
        volume["emptyDir"] = {}
    for source in _VOLUME_MODES:
        if source in volume:
            default(branch(volume, source), defaultMode=FILE_MODE)


def _create(value: Obj) -> None:
    spec = grow(value, "spec")
    default(spec, priority=0, preemptionPolicy="PreemptLowerPriority")
    tolerations = rows(spec, "tolerations")
    for key in TOLERATED:
        if not any(_tolerates(t, key) for t in tolerations):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            tolerations.append({**toleration, "tolerationSeconds": 300})
    spec["tolerations"] = tolerations
    value["status"] = {"phase": "Pending", "qosClass": _quality(value)}


def _tolerates(toleration: Obj, key: str) -> bool:
    return text(toleration, "key") in {"", key} and text(toleration, "effect") in {"", "NoExecute"}


def _quality(value: Obj) -> str:
    resources = [branch(c, "resources") for c in rows(value, "spec", "containers")]
    if not any(branch(r, "limits") or branch(r, "requests") for r in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= branch(r, "limits").keys()
        and branch(r, "limits") == branch(r, "requests")
        for r in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _validate(value: Obj) -> Iterator[Fault]:
    containers = rows(value, "spec", "containers")
    if not containers:
        yield field_errors.required("spec.containers")
    names: set[str] = set()
    for index, container in enumerate(containers):
        path, name = f"spec.containers[{index}]", text(container, "name")
        if not name:
            yield field_errors.required(f"{path}.name")
        else:
            faults = naming.label_faults(name)
            yield from (field_errors.invalid(f"{path}.name", name, why) for why in faults)
        if name in names:
            yield field_errors.duplicate(f"{path}.name", name)
        names.add(name)
        if not text(container, "image"):
            yield field_errors.required(f"{path}.image")
    policy = text(value, "spec", "restartPolicy")
    if policy not in {"Always", "OnFailure", "Never"}:
        allowed = ("Always", "OnFailure", "Never")
        yield field_errors.unsupported("spec.restartPolicy", policy, allowed)


def _validate_update(new: Obj, old: Obj) -> Iterator[Fault]:
    """Only a few fields of a pod's spec may change."""
    before, after = (clone(branch(o, "spec")) for o in (old, new))
    for name in ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations"):
        before.pop(name, None)
        after.pop(name, None)
    for spec in (before, after):
        for container in (*rows(spec, "containers"), *rows(spec, "initContainers")):
            container.pop("image", None)
    if before != after:
        yield field_errors.forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
            "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
            "(allow it to be set to 1 if it was previously negative)",
        )


def _update(new: Obj, old: Obj) -> None:
    quality = look(old, "status", "qosClass")
    if quality is not None and "status" in new:
        grow(new, "status")["qosClass"] = copied(quality)


def _ready(value: Obj) -> str:
    containers = rows(value, "spec", "containers")
    ready = sum(c.get("ready") is True for c in rows(value, "status", "containerStatuses"))
    return f"{ready}/{len(containers)}"


def _status(value: Obj) -> str:
    if text(value, "metadata", "deletionTimestamp"):
        return "Terminating"
    return text(value, "status", "reason") or text(value, "status", "phase")


def _restarts(value: Obj) -> str:
    statuses = rows(value, "status", "containerStatuses")
    return str(sum(number(c, "restartCount") for c in statuses))


def _or_none(*path: str) -> Column:
    titles = {"podIP": "IP", "nodeName": "Node", "nominatedNodeName": "Nominated Node"}
    return Column(titles[path[-1]], lambda o: text(o, *path) or NONE, wide=True)


PODS = Resource(
    kind="Pod",
    plural="pods",
    schema="core.Pod",
    returns_deleted=True,
    short_names=("po",),
    categories=("all",),
    counts_generations=True,
    subresources=(
        Subresource("binding", "Binding", ("create",)),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
        Subresource("log", "Pod", ("get",)),
        Subresource("status", "Pod", STATUS_VERBS),
    ),
    rules=Rules(
        default=_default,
        create=_create,
        update=_update,
        validate=_validate,
        validate_update=_validate_update,
    ),
    columns=(
        NAME,
        Column("Ready", _ready),
        Column("Status", _status),
        Column("Restarts", _restarts),
        AGE,
        _or_none("status", "podIP"),
        _or_none("spec", "nodeName"),
        _or_none("status", "nominatedNodeName"),
        Column(
            "Readiness Gates",
            lambda o: NONE if not rows(o, "spec", "readinessGates") else "",
            wide=True,
        ),
    ),
    selectable={
        "spec.nodeName": ("spec", "nodeName"),
        "spec.restartPolicy": ("spec", "restartPolicy"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "spec.serviceAccountName": ("spec", "serviceAccountName"),
        "status.phase": ("status", "phase"),
        "status.podIP": ("status", "podIP"),
        "status.nominatedNodeName": ("status", "nominatedNodeName"),
    },
)


def grace_of(value: Obj, asked: int | None) -> int:
    """Grace period of a deletion: 0 unless the pod runs on a node."""
    if not text(value, "spec", "nodeName") or text(value, "status", "phase") in DONE:
        return 0
    if asked is not None:
        return max(asked, 1) if asked < 0 else asked
    return number(value, "spec", "terminationGracePeriodSeconds")
