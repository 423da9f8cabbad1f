"""Checks of volumes: the driver on the cluster and its nodes, attachments, two writers. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from pileus.cloud.finding import Finding
from pileus.cloud.volume import ZONE_LABEL
from pileus.controllers.volume.objects import VOLUME_ID, annotation, is_attached, node_of
from pileus.doctor.check import Verdict, counted, error, lasting, listed, titled, warning
from pileus.doctor.installation import install_csi
from pileus.doctor.manager_checks import is_held
from pileus.doctor.observation import CloudState, Observation, Storage, Unread, known
from pileus.doctor.records import CsiDriver, Lease, Node
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.kube.model.meta import KubeObject
from pileus.kube.model.storage_v1 import VolumeAttachment
from pileus.objects.nodes import is_ready, is_uninitialized, provider_id_of
from pileus.volumes.parameters import DRIVER_SUFFIX
from pileus.volumes.persistent_volumes import terms_of
from pileus.volumes.sidecars import sidecar_leases

SLOW = timedelta(minutes=5)
"""How long an attachment, a detachment or the registration of a driver may take."""
RECENT = timedelta(hours=1)
OS_LABEL = "kubernetes.io/os"
PERSISTENT = "Persistent"


def volumes(seen: Observation) -> Verdict:
    """Whether the volumes of each driver of Pileus can be used."""
    storage = known(seen.storage)
    if not storage.names:
        return Verdict("none: no StorageClass or CSIDriver of a driver of Pileus")
    findings = (
        *_drivers(seen, storage),
        *_registrations(seen, storage),
        *_attachments(seen, storage.attachments),
        *_writers(seen, storage),
        *_missing(seen.clouds),
        *_zones(seen, storage),
    )
    count = 0 if isinstance(seen.volumes, Unread) else len(seen.volumes)
    attached = counted(len(storage.attachments), "attachment")
    objects = f"{counted(count, 'PersistentVolume')}, {attached}"
    return Verdict(f"{', '.join(storage.names)} ({objects})", findings)


def cloud_of(driver: str) -> str:
    """Returns the name of the cloud whose volumes the driver serves."""
    return driver.removesuffix(DRIVER_SUFFIX)


def _install(seen: Observation, driver: str) -> str:
    expected = seen.expected
    given = expected.flags or (f"--cloud-provider={cloud_of(driver)}",)
    return install_csi(seen.installation, given, sidecars=not expected.serves_volumes)


def _replace(seen: Observation, driver: str) -> str:
    delete, install = f"kubectl delete csidriver {driver}", _install(seen, driver)
    if install.startswith("pileus "):
        return f"{delete} && {install}"
    return f"{install}, after: {delete}"


def _drivers(seen: Observation, storage: Storage) -> Iterator[Finding]:
    known_drivers = {each.metadata.name: each for each in storage.drivers}
    for driver in storage.names:
        classes = [each.metadata.name for each in storage.classes if each.provisioner == driver]
        found = known_drivers.get(driver)
        if found is None:
            yield error(
                "csi-driver-missing",
                f"CSIDriver {driver}",
                f"does not exist, but {titled('StorageClass', classes)} names it",
                reason="the driver is not installed, or only in part",
                fix=_install(seen, driver),
            )
        elif differs := [*_differences(found)]:
            yield error(
                "csi-driver-differs",
                f"CSIDriver {driver}",
                f"has {' and '.join(differs)}",
                reason="without attachments and persistent volumes, pods wait for their volumes "
                "indefinitely",
                fix=_replace(seen, driver),
            )


def _differences(driver: CsiDriver) -> Iterator[str]:
    """Yields the fields with which the driver cannot work."""
    spec = driver.spec
    if spec is None:
        return
    if spec.attach_required is False:
        yield "attachRequired: false"
    modes = spec.volume_lifecycle_modes
    if modes and PERSISTENT not in modes:
        yield f"volumeLifecycleModes: {', '.join(modes)}"


def _registrations(seen: Observation, storage: Storage) -> Iterator[Finding]:
    """Yields ready nodes on which the kubelet does not know the driver."""
    if storage.nodes is None or isinstance(seen.nodes, Unread):
        return
    registered = {
        each.metadata.name: {one.name for one in (each.spec and each.spec.drivers) or ()}
        for each in storage.nodes
    }
    for driver in storage.names:
        nodes = [each for each in seen.nodes if _can_register(seen, driver, each)]
        names = [each.metadata.name for each in nodes]
        without = [name for name in names if driver not in registered.get(name, set())]
        if without:
            yield (error if len(without) == len(names) else warning)(
                "csi-node-missing",
                titled("Node", without),
                f"{'has' if len(without) == 1 else 'have'} no driver {driver} in the CSINode",
                reason="the driver does not run there, or is not registered with the kubelet: "
                "pods with its volumes do not start",
                fix=f"kubectl get pods --all-namespaces --field-selector=spec.nodeName={without[0]}"
                "   # is pileus-csi-node there? See its log",
            )


def _can_register(seen: Observation, driver: str, node: Node) -> bool:
    """Returns whether the driver should be registered on the node by now."""
    labels = node.metadata.labels or {}
    return (
        provider_id_of(node).startswith(f"{_scheme(seen.clouds, driver)}:")
        and is_ready(node)
        and not is_uninitialized(node)
        and labels.get(OS_LABEL, "linux") == "linux"
        and _age(node, seen.server_now) > SLOW
    )


def _scheme(clouds: Iterable[CloudState], driver: str) -> str:
    """Returns the scheme of the provider IDs of the driver's cloud."""
    name = cloud_of(driver)
    return next((each.scheme for each in clouds if each.name == name and each.scheme), name)


def _age(item: KubeObject, now: datetime) -> timedelta:
    created = item.metadata.creation_timestamp
    return timedelta() if created is None else now - created


def _attachments(seen: Observation, attachments: Iterable[VolumeAttachment]) -> Iterator[Finding]:
    now = seen.server_now
    for each in attachments:
        since = each.metadata.deletion_timestamp
        if since is not None:
            if now - since > SLOW:
                yield _stuck_detachment(each, now - since)
        elif not is_attached(each) and _age(each, now) > SLOW:
            yield _stuck_attachment(each, _age(each, now))


def _stuck_attachment(item: VolumeAttachment, age: timedelta) -> Finding:
    failed = item.status.attach_error if item.status else None
    subject, fix = _about(item)
    waiting = f"waits for {lasting(age.total_seconds())}"
    if failed is not None:
        return error(
            "attachment-failing",
            subject,
            f"{waiting}: {failed.message or 'attachError is set'}",
            reason=f"the volume cannot be attached to node {node_of(item)}: its pod does not start",
            fix=fix,
        )
    return error(
        "attachment-stuck",
        subject,
        f"{waiting}, without any answer",
        reason="neither external-attacher nor the volume controller works on it",
        fix=fix,
    )


def _stuck_detachment(item: VolumeAttachment, age: timedelta) -> Finding:
    failed = item.status.detach_error if item.status else None
    subject, fix = _about(item)
    why = f": {failed.message}" if failed and failed.message else ""
    return error(
        "detachment-stuck",
        subject,
        f"is being deleted since {lasting(age.total_seconds())}{why}",
        reason=f"the volume is not detached from node {node_of(item)}: no other node can use it",
        fix=fix,
    )


def _about(item: VolumeAttachment) -> tuple[str, str]:
    """Returns the subject and the fix of a finding."""
    name = item.metadata.name
    return f"VolumeAttachment {name}", f"pileus explain volumeattachment {name}"


def _writers(seen: Observation, storage: Storage) -> Iterator[Finding]:
    """Yields drivers whose volumes both sidecars and the volume controller change."""
    if isinstance(seen.sidecars, Unread):
        return
    for driver in storage.names:
        names = sidecar_leases(driver)
        held = [
            f"{names[each.metadata.name]} (Lease {each.metadata.namespace}/{each.metadata.name})"
            for each in seen.sidecars
            if each.metadata.name in names and is_held(each, seen.server_now)
        ]
        evidence = _evidence(seen, storage, driver)
        if held and evidence:
            yield error(
                "volume-writers",
                f"driver {driver}",
                f"is served by {listed(held)}, and by the volume controller of Pileus: {evidence}",
                reason="both create, attach, resize and delete the same volumes",
                fix="remove the sidecars, or start the manager without volume-controller in "
                "--controllers",
            )


def _evidence(seen: Observation, storage: Storage, driver: str) -> str:
    """Returns how one sees that the volume controller works for the driver; empty: it does not."""
    recent = [
        each.metadata.name
        for each in storage.attachments
        if each.spec
        and each.spec.attacher == driver
        and annotation(each, VOLUME_ID)
        and _age(each, seen.server_now) < RECENT
    ]
    if recent:
        return f"it attached {titled('VolumeAttachment', recent)}"
    if not seen.expected.serves_volumes or not _is_selected(seen, driver):
        return ""
    return "--controllers enables it, and a manager leads" if _is_led(seen.lease, seen) else ""


def _is_selected(seen: Observation, driver: str) -> bool:
    return any(cloud_of(driver) in {each.name, each.scheme} for each in seen.clouds)


def _is_led(lease: object, seen: Observation) -> bool:
    return isinstance(lease, Lease) and is_held(lease, seen.server_now)


def _zones(seen: Observation, storage: Storage) -> Iterator[Finding]:
    """Yields zones of volumes in which no node is: pods with such volumes are never scheduled."""
    if isinstance(seen.volumes, Unread) or isinstance(seen.nodes, Unread) or not seen.nodes:
        return
    present = {(each.metadata.labels or {}).get(ZONE_LABEL, "") for each in seen.nodes}
    names: dict[str, list[str]] = {}
    for each in seen.volumes:
        csi = each.spec and each.spec.csi
        zones = _zones_of(each) if csi and csi.driver in storage.names else frozenset[str]()
        if zones and not zones & present:
            names.setdefault(" or ".join(sorted(zones)), []).append(each.metadata.name)
    for zone, volumes in sorted(names.items()):
        yield warning(
            "volume-without-node",
            titled("PersistentVolume", sorted(volumes)),
            f"{'is' if len(volumes) == 1 else 'are'} in zone {zone}, and no node is: nodes are in "
            f"{listed(sorted(filter(None, present))) or 'no zone'}",
            reason="pods with these volumes are not scheduled. The zones of volumes and machines "
            "differ in the cloud, or the volume was created before its pod had a node",
            fix="use a StorageClass with volumeBindingMode: WaitForFirstConsumer; on OpenStack, if "
            "every server can attach every volume, set ignore-volume-az in [BlockStorage] of "
            "cloud.conf, and create the claims again",
        )


def _zones_of(volume: PersistentVolume) -> frozenset[str]:
    """Returns the zones in which the volume can be used; empty: in all."""
    return frozenset(
        value
        for term in terms_of(volume)
        for each in term.match_expressions or ()
        if each.key == ZONE_LABEL and each.operator == "In"
        for value in each.values or ()
    )


def _missing(clouds: Iterable[CloudState]) -> Iterator[Finding]:
    for cloud in clouds:
        if cloud.volume_problem:
            yield warning(
                "volumes-unknown",
                f"cloud {cloud.name}",
                f"volumes cannot be listed: {cloud.volume_problem}",
                reason="PersistentVolumes without a volume were not looked for",
                fix="fix what the message names, then: pileus doctor",
            )
        if cloud.missing_volumes:
            names = sorted(cloud.missing_volumes)
            yield error(
                "volume-missing",
                titled("PersistentVolume", names),
                f"{'has' if len(names) == 1 else 'have'} no volume in cloud {cloud.name}",
                reason="the volume was deleted by others, or the credentials are for another "
                "project, region or cluster ID",
                fix=f"pileus explain pv {names[0]}   # restore the volume, or delete the claim",
            )
