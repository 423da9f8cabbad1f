"""What must hold for volumes: at every step, and at the end."""

from collections.abc import Iterator, Mapping

from pileus.controllers.volume.descriptor import VOLUME
from pileus.controllers.volume.objects import CLAIM_FINALIZER, NODE_ID
from pileus.controllers.volume.plan import MISSING
from pileus.quantity import bytes_of
from pileus.volumes.parameters import GIB, claim_owner
from pileus_lab.apiserver.tree import Obj, look, name_of, text, texts, words
from pileus_lab.node_agents.volume_binder import is_deleting, uid_of
from pileus_lab.simulation.clouds.truth import Volume
from pileus_lab.simulation.environment.cluster import ATTACHMENTS, CLAIMS, VOLUMES
from pileus_lab.simulation.environment.steps import (
    CloudStep,
    HostEvent,
    HostStep,
    ObjectStep,
)
from pileus_lab.simulation.environment.storage import OTHER_CLASS
from pileus_lab.simulation.invariants.facts import Facts
from pileus_lab.simulation.invariants.service_history import is_manager
from pileus_lab.simulation.kinds import FaultKind
from pileus_lab.simulation.schedule import Spell

RESIZING = "NodeResizePending"
ROUNDED = 1 << 20
"""Bytes by which a filesystem may be smaller than its device."""


def volumes_outlive_their_claims(facts: Facts, step: CloudStep) -> str | None:
    """No volume is deleted while its claim exists, unless no pod could ever have used it."""
    if not is_manager(step.who):
        return None
    gone = [one for key, one in step.before.volumes.items() if key not in step.after.volumes]
    for volume in gone:
        for claim in facts.cluster.objects(CLAIMS):
            is_owner = volume.owner is not None and volume.owner.uid == claim_owner(uid_of(claim))
            if is_owner and (text(claim, "spec", "volumeName") or not is_deleting(claim)):
                return f"volume {volume.id} was deleted, and claim {name_of(claim)} exists"
        if volume.machine and not _acts_late(facts):
            return f"volume {volume.id} was deleted while machine {volume.machine} had it"
    return None


def claims_get_one_volume(facts: Facts, step: CloudStep) -> str | None:
    """No volume is created for a claim that has one: it would hide that the data is lost."""
    made = [one for key, one in step.after.volumes.items() if key not in step.before.volumes]
    for volume in made if is_manager(step.who) else ():
        for pv in facts.cluster.objects(VOLUMES):
            handle = text(pv, "spec", "csi", "volumeHandle")
            if volume.owner is not None and volume.owner.uid == name_of(pv) and handle != volume.id:
                return f"{name_of(pv)} has {handle}, and {volume.id} was created"
    return None


def only_own_classes_get_volumes(facts: Facts, step: CloudStep) -> str | None:
    """No volume is created for a claim of another driver's class, whatever its annotations say."""
    made = [one for key, one in step.after.volumes.items() if key not in step.before.volumes]
    for claim in facts.cluster.objects(CLAIMS) if made and is_manager(step.who) else ():
        owner = claim_owner(uid_of(claim))
        if _is_others(claim) and any(one.owner and one.owner.uid == owner for one in made):
            return f"claim {name_of(claim)} of another driver's class got a volume"
    return None


def _is_others(claim: Obj) -> bool:
    return text(claim, "spec", "storageClassName") == OTHER_CLASS


def volumes_are_attached_once(facts: Facts, step: CloudStep) -> str | None:
    """No volume is attached to a machine while another one has it."""
    if not is_manager(step.who) or _acts_late(facts):
        return None
    for key, after in step.after.volumes.items():
        before = step.before.volumes.get(key)
        if before is not None and before.machines and before.machines < after.machines:
            return f"volume {key} is attached to {', '.join(sorted(after.machines))}"
    return None


def mounted_volumes_are_not_detached(facts: Facts, step: CloudStep) -> str | None:
    """No volume is detached from a running machine that has it mounted."""
    if facts.hosts is None or not is_manager(step.who) or _acts_late(facts):
        return None
    for key, before in step.before.volumes.items():
        after = step.after.volumes.get(key)
        for machine in before.machines - (after.machines if after else frozenset()):
            if facts.hosts.is_mounted(key, machine):
                return f"volume {key} was detached from {machine}, which has it mounted"
    return None


def volumes_with_data_are_never_formatted(facts: Facts, step: HostStep) -> str | None:
    """Nor is one that is mounted, or a disk that is no volume."""
    if step.event is not HostEvent.FORMAT or facts.hosts is None:
        return None
    disk = facts.hosts.disks.get(step.volume)
    if disk is None:
        return f"a disk of {step.machine} was formatted that is no volume"
    if disk.records:
        return f"volume {step.volume} was formatted with {len(disk.records)} records of pods"
    if disk.strange is not None:
        return f"volume {step.volume} was formatted with data of others"
    mounted = facts.hosts.mounted_on(step.volume)
    return f"volume {step.volume} was formatted while {mounted} had it mounted" if mounted else None


def volumes_are_mounted_on_one_machine(facts: Facts, step: HostStep) -> str | None:
    if step.event is not HostEvent.MOUNT or facts.hosts is None:
        return None
    others = [one for one in facts.hosts.mounted_on(step.volume) if one != step.machine]
    if not others or not step.volume:
        return None
    return f"volume {step.volume} is mounted on {step.machine}, and on {', '.join(others)}"


def pods_read_what_pods_wrote(_: Facts, step: HostStep) -> str | None:
    """A pod finds all that earlier pods of its claim have written, and nothing else."""
    is_wrong = step.event is HostEvent.READ and step.wrong
    return f"a pod on {step.machine} found {step.wrong}" if is_wrong else None


def volumes_for_readers_stay_as_they_are(_: Facts, step: HostStep) -> str | None:
    """For a pod that only reads, by access mode or mount option, no filesystem is changed."""
    if step.for_readers and step.event in {HostEvent.FORMAT, HostEvent.GROW}:
        return f"volume {step.volume} {step.event} on {step.machine} for a pod that only reads"
    return None


def pods_that_only_read_cannot_write(_: Facts, step: HostStep) -> str | None:
    """And those that write can."""
    if step.event is HostEvent.USE and step.wrong:
        return f"a pod {step.what} volume {step.volume} on {step.machine}, and {step.wrong}"
    return None


def volumes_stay_where_pods_are(facts: Facts, step: CloudStep) -> str | None:
    """No volume is detached from a machine whose attachment is not being deleted.

    If the cloud performs requests long after it answered with an error, an old one may do so.
    """
    if not is_manager(step.who) or _acts_late(facts):
        return None
    for key, before in step.before.volumes.items():
        after = step.after.volumes.get(key)
        if not before.machine or after is None or after.machine == before.machine:
            continue
        for one in facts.cluster.objects(ATTACHMENTS):
            if is_deleting(one) or not look(one, "status", "attached"):
                continue
            if _machine(facts, one) == before.machine and _volume_of(facts, one) == key:
                return f"volume {key} was detached, and attachment {name_of(one)} exists"
    return None


def attachments_stay_until_volumes_are_detached(facts: Facts, step: ObjectStep) -> str | None:
    """No finalizer of an attachment is removed while its machine has the volume.

    Without it, nothing remembers that the volume has to be detached. Not counted are volumes that
    the kubelet has not unmounted, and clouds that forget what they accept.
    """
    before, after = step.before, step.after
    if step.resource != ATTACHMENTS or not is_manager(step.who) or before is None:
        return None
    removed = {*texts(before, "metadata", "finalizers")} - {*texts(after, "metadata", "finalizers")}
    if not removed or _acts_late(facts) or _has(facts, FaultKind.CLOUD_IGNORED):
        return None
    volume = facts.account.truth().volumes.get(_volume_of(facts, before))
    machine = words(before, "metadata", "annotations").get(NODE_ID, "")
    if volume is None or volume.is_leaving or machine not in volume.machines:
        return None
    if facts.hosts is not None and facts.hosts.is_mounted(volume.id, machine):
        return None
    return f"attachment {name_of(before)} ended while {machine} had volume {volume.id}"


def _acts_late(facts: Facts) -> bool:
    return _has(facts, FaultKind.CLOUD_AFTERWARDS)


def _has(facts: Facts, kind: FaultKind) -> bool:
    spells = [one for one in facts.schedule.items if isinstance(one, Spell)]
    return any(one.kind is kind for one in spells)


def _machine(facts: Facts, attachment: Obj) -> str:
    name = text(attachment, "spec", "nodeName")
    machines = facts.account.truth().machines
    return next((one.id for one in machines if one.name == name), "")


def _volume_of(facts: Facts, attachment: Obj) -> str:
    name = text(attachment, "spec", "source", "persistentVolumeName")
    volumes = facts.cluster.objects(VOLUMES)
    found = (one for one in volumes if name_of(one) == name)
    return next((text(one, "spec", "csi", "volumeHandle") for one in found), "")


def claims_have_their_volumes(facts: Facts) -> Iterator[str]:
    """Each claim is bound to a volume of its size, and nothing of its creation is left."""
    if not facts.runs(VOLUME.canonical):
        return
    volumes = facts.account.truth().volumes
    handles = {
        name_of(one): text(one, "spec", "csi", "volumeHandle")
        for one in facts.cluster.objects(VOLUMES)
    }
    for claim in facts.cluster.objects(CLAIMS):
        name, volume = (
            name_of(claim),
            volumes.get(handles.get(text(claim, "spec", "volumeName"), "")),
        )
        if volume and (not volume.owner or volume.owner.uid != claim_owner(uid_of(claim))):
            volume = None
        if _is_lost(facts, claim) or (_is_others(claim) and not is_deleting(claim)):
            continue
        lack = _lack(facts, claim, volume)
        if lack:
            yield f"claim {name} {lack}"
        if CLAIM_FINALIZER in texts(claim, "metadata", "finalizers"):
            yield f"claim {name} keeps the finalizer of its creation"


def _lack(facts: Facts, claim: Obj, volume: Volume | None) -> str:
    """Returns what the claim does not have; empty: it has everything."""
    wanted = bytes_of(text(claim, "spec", "resources", "requests", "storage"))
    if is_deleting(claim):
        return "is still being deleted"
    if text(claim, "status", "phase") != "Bound" or volume is None:
        return "has no volume"
    if volume.size_gib * GIB < wanted:
        return f"has {volume.size_gib} GiB"
    shown = bytes_of(text(claim, "status", "capacity", "storage") or "0")
    is_shown = shown >= wanted or _waits_for_a_pod(facts, claim)
    return "" if is_shown else "does not show its new size"


def volumes_are_attached_for_pods(facts: Facts) -> Iterator[str]:
    """Each attachment is made and reported, and no volume is attached without one."""
    if not facts.runs(VOLUME.canonical):
        return
    volumes, covered = facts.account.truth().volumes, set[str]()
    for one in facts.cluster.objects(ATTACHMENTS):
        id_ = _volume_of(facts, one)
        covered.add(id_)
        lack = (
            "" if id_ in facts.lost_volumes else _lack_of_attachment(facts, one, volumes.get(id_))
        )
        if lack:
            yield f"attachment {name_of(one)} {lack}"
    for volume in volumes.values():
        if volume.machine and volume.id not in covered:
            yield f"volume {volume.id} is attached to {volume.machine} without an attachment"


def _has_pod(pods: Mapping[str, str], facts: Facts, attachment: Obj) -> bool:
    name, node = _volume_name(attachment), text(attachment, "spec", "nodeName")
    pvs = (one for one in facts.cluster.objects(VOLUMES) if name_of(one) == name)
    return any(pods.get(text(one, "spec", "claimRef", "uid")) == node for one in pvs)


def _volume_name(attachment: Obj) -> str:
    return text(attachment, "spec", "source", "persistentVolumeName")


def _lack_of_attachment(facts: Facts, attachment: Obj, volume: Volume | None) -> str:
    machine = _machine(facts, attachment)
    if is_deleting(attachment):
        # A pod may come back before the volume is detached: then it stays as long as the pod runs.
        used = facts.hosts is not None and volume and facts.hosts.is_mounted(volume.id, machine)
        return "" if used else "is still being deleted"
    if facts.hosts is not None and not _has_pod(facts.hosts.around.claims.pods, facts, attachment):
        return "is of no pod"
    if volume is None or volume.machines != frozenset({machine}):
        found = ", ".join(sorted(volume.machines)) if volume else "no volume"
        return f"is not made: {found}"
    return "" if look(attachment, "status", "attached") is True else "is not reported"


def no_volume_is_left_behind(facts: Facts) -> Iterator[str]:
    """Every volume and every PersistentVolume has a claim."""
    if not facts.runs(VOLUME.canonical):
        return
    owners = {claim_owner(uid_of(one)) for one in facts.cluster.objects(CLAIMS)}
    for volume in facts.account.truth().volumes.values():
        if volume.owner is not None and volume.owner.uid not in owners:
            yield f"volume {volume.id} of {volume.owner.uid} is left"
    for one in facts.cluster.objects(VOLUMES):
        if name_of(one) not in owners:
            yield f"PersistentVolume {name_of(one)} is left"


def _is_lost(facts: Facts, claim: Obj) -> bool:
    """Whether the volume of the claim was deleted by users."""
    name = text(claim, "spec", "volumeName")
    pvs = (one for one in facts.cluster.objects(VOLUMES) if name_of(one) == name)
    return any(text(one, "spec", "csi", "volumeHandle") in facts.lost_volumes for one in pvs)


def _waits_for_a_pod(facts: Facts, claim: Obj) -> bool:
    """Whether the filesystem can grow only when a pod uses it."""
    if facts.hosts is None or uid_of(claim) in facts.hosts.around.claims.pods:
        return False
    return words(claim, "status", "allocatedResourceStatuses").get("storage") == RESIZING


def lost_volumes_are_reported(facts: Facts) -> Iterator[str]:
    """A claim whose volume was deleted by users has an event about it."""
    told = {
        text(one, "involvedObject", "uid")
        for one in facts.cluster.objects("events")
        if text(one, "reason") == MISSING
    }
    for claim in facts.cluster.objects(CLAIMS) if facts.runs(VOLUME.canonical) else ():
        if _is_lost(facts, claim) and not is_deleting(claim) and uid_of(claim) not in told:
            yield f"the volume of claim {name_of(claim)} is missing, and no event reports it"


def pods_run_with_their_volumes(facts: Facts) -> Iterator[str]:
    """Each pod runs, on a filesystem that is as large as its claim says."""
    hosts = facts.hosts
    if hosts is None:
        return
    named = {host.name: host for host in hosts.running.values()}
    for claim in facts.cluster.objects(CLAIMS):
        node = hosts.around.claims.pods.get(uid_of(claim))
        if node is None or is_deleting(claim) or _is_lost(facts, claim):
            continue
        uses = named[node].uses.values() if node in named else ()
        use = next((one for one in uses if one.claim == uid_of(claim)), None)
        shown = bytes_of(text(claim, "status", "capacity", "storage") or "0")
        if use is None or not use.is_running:
            trouble = use.trouble if use is not None else "it has no device"
            yield f"the pod of claim {name_of(claim)} does not run on {node}: {trouble}"
        elif hosts.disks[use.volume].filesystem_size + ROUNDED < shown:
            size = hosts.disks[use.volume].filesystem_size
            yield f"claim {name_of(claim)} shows {shown} bytes, and its filesystem has {size}"


FOR_VOLUMES = (
    lost_volumes_are_reported,
    pods_run_with_their_volumes,
    claims_have_their_volumes,
    volumes_are_attached_for_pods,
    no_volume_is_left_behind,
)
"""What must hold at the end."""
