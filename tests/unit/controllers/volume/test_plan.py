"""Laws of the plan, over all combinations of what can be observed."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import msgspec
import pytest

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable
from pileus.cloud.model import Absent, Instance, InstanceId, InstanceState
from pileus.cloud.volume import (
    Attachment,
    FromSnapshot,
    FromVolume,
    SnapshotId,
    Volume,
    VolumeId,
    VolumeState,
)
from pileus.controllers.volume.attach import BUSY, GONE_AFTER, plan_strays
from pileus.controllers.volume.objects import (
    CLAIM_FINALIZER,
    DELETE_FINALIZER,
    NODE_ID,
    PROVISIONED_BY,
    PROVISIONERS,
    VOLUME_ID,
    Rules,
)
from pileus.controllers.volume.observation import Held, Observation, Released
from pileus.controllers.volume.plan import plan
from pileus.controllers.volume.provision import SECOND_LOOK
from pileus.controllers.volume.source import Origin
from pileus.controllers.volume.steps import (
    Attach,
    CheckInstances,
    CheckVolume,
    CreatePersistentVolume,
    CreateVolume,
    DeletePersistentVolume,
    DeleteVolume,
    Detach,
    DetachStray,
    PublishAttached,
    PublishResize,
    RemoveAttachmentFinalizer,
    RemoveClaimFinalizer,
    Resize,
    SetFinalizer,
)
from pileus.kube.model.core_v1 import Node, PersistentVolume, PersistentVolumeClaim
from pileus.kube.model.storage_v1 import StorageClass, VolumeAttachment

DRIVER = "local.csi.pileus.dev"
RULES = Rules(DRIVER, "cluster")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID = VolumeId("vol-1")
ON, OFF = InstanceState.RUNNING, InstanceState.STOPPED
BOOLS = (False, True)
NAME = "pvc-u1"


def made(kind: type[Any], value: dict[str, Any]) -> Any:
    return msgspec.convert(value, kind)


def claim(**changes: Any) -> PersistentVolumeClaim:
    uid = changes.pop("uid", "u1")
    metadata: dict[str, Any] = {"name": "data", "namespace": "default", "uid": uid}
    metadata["annotations"] = changes.pop("annotations", None)
    finalizers = changes.pop("finalizers", None)
    deleting = changes.pop("deleting", False)
    if finalizers:
        metadata["finalizers"] = finalizers
    if deleting:
        metadata["deletionTimestamp"] = NOW
    return made(PersistentVolumeClaim, {"metadata": metadata, **changes})


def pv(
    *,
    phase: str = "Bound",
    deleting: bool = False,
    policy: str = "Delete",
    ours: bool = True,
    uid: str = "pv-uid",
    of: str = "u1",
) -> PersistentVolume:
    """`of`: the UID of the claim that it names."""
    metadata: dict[str, Any] = {"name": NAME, "uid": uid, "finalizers": [DELETE_FINALIZER]}
    if ours:
        metadata["annotations"] = {PROVISIONED_BY: DRIVER}
    if deleting:
        metadata["deletionTimestamp"] = NOW
    spec = {
        "csi": {"driver": DRIVER, "volumeHandle": ID},
        "capacity": {"storage": "1Gi"},
        "persistentVolumeReclaimPolicy": policy,
        "claimRef": {"name": "data", "namespace": "default", "uid": of},
    }
    return made(PersistentVolume, {"metadata": metadata, "spec": spec, "status": {"phase": phase}})


def volume(state: VolumeState, *holders: str) -> Volume:
    held = tuple(Attachment(InstanceId(one), "/dev/vdb") for one in holders)
    owner = Owner("cluster", NAME)
    return Volume(id=ID, owner=owner, size_gib=1, state=state, attachments=held)


def held(host: str, *, deleting: bool, attached: bool = False, **given: Any) -> Held:
    metadata: dict[str, Any] = {
        "name": f"va-{host}",
        "uid": f"va-{host}",
        "finalizers": [RULES.attach_finalizer],
        "annotations": {NODE_ID: f"i-{host}", VOLUME_ID: ID},
    }
    if deleting:
        metadata["deletionTimestamp"] = NOW
    source = {"persistentVolumeName": NAME}
    spec = {"attacher": DRIVER, "nodeName": host, "source": source}
    status = {"attached": attached}
    item = made(VolumeAttachment, {"metadata": metadata, "spec": spec, "status": status})
    return Held(item, **given)


def node(*, in_use: bool, ready: bool = False) -> Node:
    used = [f"kubernetes.io/csi/{DRIVER}^{ID}"] if in_use else []
    conditions = [{"type": "Ready", "status": str(ready)}]
    status = {"volumesInUse": used, "conditions": conditions}
    return made(Node, {"metadata": {"name": "n1"}, "status": status})


def instance(state: InstanceState) -> Instance:
    return Instance(id=InstanceId("i-n1"), provider_id="local://i-n1", state=state)


ANSWERS = (None, instance(ON), instance(OFF), Absent("not listed"), Unavailable("no answer"))
VOLUMES = (
    None,
    volume(VolumeState.AVAILABLE),
    volume(VolumeState.CREATING),
    volume(VolumeState.ATTACHED, "i-n1"),
    volume(VolumeState.ATTACHED, "i-n2"),
    volume(VolumeState.DETACHING, "i-n1"),
    volume(VolumeState.ATTACHING, "i-n1"),
    volume(VolumeState.DETACHING),
    volume(VolumeState.ATTACHING),
    volume(VolumeState.RESIZING),
    volume(VolumeState.DELETING),
    volume(VolumeState.ERROR),
)
FRESH = (
    None,
    Released(pv(phase="Released"), None),
    Released(pv(phase="Released"), claim()),
    Released(pv(phase="Bound"), None),
    Released(pv(phase="Released", policy="Retain"), None),
    Released(pv(phase="Released", uid="another"), None),
    Released(pv(phase="Released", of="another"), None),
    Released(None, None),
)


def reclaims() -> Iterator[Observation]:
    for phase, deleting, policy, ours in product(
        ("Bound", "Released", "Available"), BOOLS, ("Delete", "Retain"), BOOLS
    ):
        item = pv(phase=phase, deleting=deleting, policy=policy, ours=ours)
        for found, fresh, has, shared in product(VOLUMES, FRESH, BOOLS, ((), ("other",))):
            yield Observation(
                name=NAME,
                date=NOW,
                pv=item,
                attachments=(held("n1", deleting=False, attached=True),) if has else (),
                shared_with=shared,
                volume=found,
                is_checked=True,
                released=fresh,
                twins=(),
            )


def test_a_volume_is_deleted_only_if_fresh_reads_prove_that_it_is_released_and_free():
    deleted = 0
    for seen in reclaims():
        if any(isinstance(step, DeleteVolume) for step in plan(RULES, seen)):
            deleted += 1
            assert seen.pv is not None
            assert seen.released == Released(pv(phase="Released"), None)
            assert seen.pv.status is not None
            assert seen.pv.status.phase == "Released" or seen.pv.metadata.deletion_timestamp
            assert seen.pv.status.phase != "Bound"
            assert RULES.is_provisioned(seen.pv)
            assert not seen.attachments
            assert not seen.shared_with
            assert seen.volume is not None
            assert not seen.volume.attachments
    assert deleted


def test_a_volume_that_was_created_twice_is_deleted_only_with_the_released_one_and_if_it_is_free():
    deleted = set[VolumeState]()
    found = [*filter(None, VOLUMES), volume(VolumeState.ATTACHED, "i-n2")]
    twins = [replace(one, id=VolumeId("twin")) for one in found]
    for seen, twin in product(reclaims(), twins):
        steps = plan(RULES, replace(seen, twins=(twin,)))
        if any(isinstance(step, DeleteVolume) and step.volume == "twin" for step in steps):
            deleted.add(twin.state)
            assert seen.released == Released(pv(phase="Released"), None)
            assert seen.pv is not None
            assert RULES.is_provisioned(seen.pv)
            assert not seen.attachments
            assert not seen.shared_with
            assert not twin.attachments
        if twin.state is VolumeState.CREATING:
            assert not any(isinstance(step, DeletePersistentVolume) for step in steps)
    assert deleted == {VolumeState.AVAILABLE, VolumeState.ERROR}


def test_nothing_is_deleted_before_twins_were_searched_for():
    for seen in reclaims():
        steps = plan(RULES, replace(seen, twins=None))
        assert not any(isinstance(step, DeleteVolume | DeletePersistentVolume) for step in steps)


def test_a_persistent_volume_goes_only_after_its_volume():
    for seen in reclaims():
        steps = plan(RULES, seen)
        removed = [
            step
            for step in steps
            if isinstance(step, DeletePersistentVolume)
            or (isinstance(step, SetFinalizer) and step.finalizer == DELETE_FINALIZER)
        ]
        assert seen.pv is not None
        assert seen.pv.spec is not None
        if removed and seen.pv.spec.persistent_volume_reclaim_policy == "Delete":
            first = next(step for step in steps if not isinstance(step, CheckVolume))
            assert seen.volume is None or isinstance(first, DeleteVolume)


def moves() -> Iterator[Observation]:
    nodes = (None, node(in_use=False), node(in_use=True), node(in_use=True, ready=True))
    known = (
        {"node": host, "answer": answer, "gone_for": gone, "is_fresh": fresh}
        for host, answer, gone, fresh in product(nodes, ANSWERS, (0.0, GONE_AFTER), BOOLS)
    )
    for found, given, deleting, attached in product(VOLUMES, known, BOOLS, BOOLS):
        first = held("n1", deleting=deleting, attached=attached, **given)
        second = held("n2", deleting=False, node=node(in_use=False), answer=instance(ON))
        for both in ((first,), (first, second)):
            yield Observation(
                name=NAME, date=NOW, pv=pv(), attachments=both, volume=found, is_checked=True
            )


def test_a_volume_in_use_is_detached_only_from_a_machine_that_is_off_or_does_not_exist():
    forced = 0
    plans = ((seen, plan(RULES, seen)) for seen in moves())
    detached = ((seen, one) for seen, steps in plans for one in steps if isinstance(one, Detach))
    for seen, step in detached:
        by = next(each for each in seen.attachments if each.attachment == step.attachment)
        assert by.attachment.metadata.deletion_timestamp is not None
        assert by.is_fresh
        assert seen.volume is not None
        assert seen.volume.state not in BUSY
        assert step.is_forced == (by.node is not None and RULES.is_in_use(by.node, ID))
        if step.is_forced:
            forced += 1
            gone = by.gone_for >= GONE_AFTER and by.node == node(in_use=True)
            assert by.answer == instance(OFF) or (isinstance(by.answer, Absent) and gone)
    assert forced


def test_a_volume_is_attached_only_if_no_other_machine_has_it():
    attached = 0
    for seen in moves():
        steps = plan(RULES, seen)
        wants = [step for step in steps if isinstance(step, Attach)]
        assert len(wants) <= 1
        for step in wants:
            attached += 1
            assert seen.volume is not None
            assert {one.instance for one in seen.volume.attachments} <= {step.instance}
            assert seen.volume.state in {VolumeState.AVAILABLE, VolumeState.ATTACHED}
            assert step.attachment.metadata.deletion_timestamp is None
    assert attached


def test_an_attachment_is_reported_only_if_the_cloud_has_it():
    for seen in moves():
        steps = plan(RULES, seen)
        for number, step in enumerate(steps):
            if isinstance(step, PublishAttached) and not any(
                isinstance(each, Attach) for each in steps[:number]
            ):
                assert seen.volume is not None
                assert seen.volume.state not in {VolumeState.ATTACHING, VolumeState.DETACHING}
                assert seen.volume.attachments


def test_an_attachment_keeps_its_finalizer_while_its_machine_has_the_volume():
    for seen in moves():
        steps = plan(RULES, seen)
        for number, step in enumerate(steps):
            if isinstance(step, RemoveAttachmentFinalizer):
                machine = step.attachment.metadata.annotations
                assert machine is not None
                holders = [one.instance for one in seen.volume.attachments] if seen.volume else []
                detached = any(isinstance(each, Detach) for each in steps[:number])
                assert machine[NODE_ID] not in holders or detached


def unnamed(*, deleting: bool) -> Held:
    """An attachment that does not name its machine, of a node that does not exist."""
    item = held("n9", deleting=deleting, attached=True).attachment
    metadata = msgspec.structs.replace(item.metadata, annotations=None)
    return Held(msgspec.structs.replace(item, metadata=metadata), is_fresh=True)


def test_an_attachment_without_its_machine_keeps_its_finalizer_while_any_machine_has_the_volume():
    for found in VOLUMES:
        seen = Observation(
            name=NAME,
            date=NOW,
            pv=pv(),
            attachments=(unnamed(deleting=True),),
            volume=found,
            is_checked=True,
        )
        steps = plan(RULES, seen)
        is_removed = any(isinstance(step, RemoveAttachmentFinalizer) for step in steps)
        assert is_removed == (found is None or not found.attachments)


def test_a_stray_is_detached_only_if_nothing_may_use_it():
    """A volume that a machine has, and of which no attachment of that machine is known."""
    detached = 0
    attachments = ((), ("n1",), ("n2",), ("unnamed",))
    holders = (None, frozenset[str](), frozenset({"i-n1"}), frozenset({""}))
    for found, names, held_by, is_in_use, known in product(
        VOLUMES, attachments, holders, BOOLS, (frozenset[str](), frozenset({"i-n1"}))
    ):
        items = [held(name, deleting=False, attached=True) for name in names if name != "unnamed"]
        if "unnamed" in names:
            items.append(unnamed(deleting=False))
        seen = Observation(
            name=NAME,
            date=NOW,
            pv=pv(),
            attachments=tuple(items),
            volume=found,
            is_checked=True,
            is_due=True,
            is_in_use=is_in_use,
            holders=held_by,
            machines=known,
        )
        for step in plan_strays(seen, pv()):
            if isinstance(step, DetachStray):
                detached += 1
                assert found is not None
                assert found.state is VolumeState.ATTACHED
                assert step.instance == "i-n1"
                assert known
                assert held_by == frozenset()
                assert not is_in_use
                assert names in {(), ("n2",)}
    assert detached


def test_the_finalizer_of_the_external_attacher_stays_while_there_are_attachments():
    item = pv()
    finalizers = (*(item.metadata.finalizers or ()), RULES.attach_finalizer)
    metadata = msgspec.structs.replace(item.metadata, finalizers=finalizers)
    item = msgspec.structs.replace(item, metadata=metadata)
    attached = held("n1", deleting=False, attached=True, node=node(in_use=True))
    for attachments in ((), (attached,)):
        seen = Observation(name=NAME, date=NOW, pv=item, attachments=attachments)
        removed = [
            step
            for step in plan(RULES, seen)
            if isinstance(step, SetFinalizer) and step.finalizer == RULES.attach_finalizer
        ]
        assert bool(removed) == (not attachments)


def abandoned() -> Iterator[tuple[Observation, Released]]:
    """Claims with the finalizer of their creation, and what fresh reads may say about them."""
    for bound, deleting, found, shared in product(
        ("", NAME, "other"), BOOLS, (*VOLUMES, None), ((), ("other",))
    ):
        kept: dict[str, Any] = {"finalizers": [CLAIM_FINALIZER], "status": {}}
        item = claim(deleting=deleting, spec={"volumeName": bound}, **kept)
        fresh = (
            item,
            claim(deleting=deleting, spec={"volumeName": bound}, status={}),
            claim(deleting=True, spec={"volumeName": bound}, **kept),
            claim(deleting=deleting, spec={"volumeName": NAME}, **kept),
            claim(deleting=deleting, spec={"volumeName": bound}, uid="u2", **kept),
            None,
        )
        for released in (*(Released(None, one) for one in fresh), Released(pv(), item)):
            for absent in (0.0, SECOND_LOOK) if found is None else (0.0,):
                seen = Observation(
                    name=NAME,
                    date=NOW,
                    claim=item,
                    volume=found,
                    shared_with=shared,
                    is_checked=True,
                    absent_for=absent,
                    released=released,
                )
                yield seen, Released(None, item)


def test_an_abandoned_volume_is_deleted_only_if_it_never_had_a_persistent_volume():
    """A claim that lost the finalizer, by the fresh read, had a PersistentVolume meanwhile."""
    deleted = removed = 0
    for seen, expected in abandoned():
        steps = plan(RULES, seen)
        assert seen.claim is not None
        assert seen.claim.spec is not None
        bound = seen.claim.spec.volume_name
        is_deleting = seen.claim.metadata.deletion_timestamp is not None
        if any(isinstance(step, DeleteVolume) for step in steps):
            deleted += 1
            assert seen.released == expected
            assert bound != NAME
            assert is_deleting or bound
            assert seen.volume is not None
            assert not seen.volume.attachments
            assert not seen.shared_with
        elif any(isinstance(step, RemoveClaimFinalizer) for step in steps):
            removed += 1
            is_absent = seen.volume is None and seen.absent_for >= SECOND_LOOK
            is_needed = seen.volume is not None and seen.shared_with
            assert (bound == NAME and is_deleting) or is_absent or is_needed
    assert deleted
    assert removed


def test_a_volume_is_created_only_if_fresh_reads_show_the_same_claim_without_one():
    given: dict[str, Any] = {
        "annotations": {PROVISIONERS[0]: DRIVER},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
    }
    item = claim(**given)
    storage_class = made(StorageClass, {"metadata": {"name": "fast"}, "provisioner": DRIVER})
    for fresh, is_created in (
        (Released(None, item), True),
        (Released(None, claim(deleting=True, **given)), False),
        (Released(None, claim(uid="u2", **given)), False),
        (Released(None, None), False),
        (Released(pv(), item), False),
    ):
        seen = Observation(
            name=NAME, date=NOW, claim=item, storage_class=storage_class, released=fresh
        )
        steps = plan(RULES, seen)
        assert any(isinstance(step, CreateVolume) for step in steps) == is_created, fresh


@pytest.mark.parametrize("uid", ["u1", "u2", ""])
def test_a_volume_grows_only_for_the_claim_that_it_names_by_uid(uid: str):
    """A claim with the name of a deleted one is another claim."""
    status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    item = claim(spec={"resources": {"requests": {"storage": "5Gi"}}}, status=status, uid=uid)
    seen = Observation(
        name=NAME,
        date=NOW,
        pv=pv(),
        claim=item,
        volume=volume(VolumeState.AVAILABLE),
        is_checked=True,
    )

    assert any(isinstance(step, Resize) for step in plan(RULES, seen)) == (uid == "u1")


def test_a_claim_never_shrinks_its_volume():
    for size in ("1Gi", "512Mi", "1"):
        status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
        item = claim(spec={"resources": {"requests": {"storage": size}}}, status=status)
        seen = Observation(name=NAME, date=NOW, pv=pv(), claim=item)
        assert not any(isinstance(step, Resize) for step in plan(RULES, seen))


@pytest.mark.parametrize(
    ("status", "is_published"),
    [
        ({}, False),
        ({"allocatedResourceStatuses": {"storage": "NodeResizePending"}}, True),
        ({"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}, True),
        ({"conditions": [{"type": "FileSystemResizePending", "status": "False"}]}, False),
        ({"conditions": [{"type": "Resizing", "status": "True"}]}, False),
    ],
    ids=["not yet", "since 1.32", "before 1.32", "over", "another condition"],
)
def test_that_a_filesystem_has_to_grow_is_published_once(
    status: dict[str, Any], is_published: bool
):
    """API servers before 1.32 drop `allocatedResourceStatuses`: the condition has to be enough."""
    given = {"phase": "Bound", "capacity": {"storage": "512Mi"}, **status}
    item = claim(
        spec={"resources": {"requests": {"storage": "1Gi"}}, "volumeName": NAME}, status=given
    )

    steps = plan(RULES, Observation(name=NAME, date=NOW, pv=pv(), claim=item))

    assert any(isinstance(step, PublishResize) for step in steps) is not is_published


def test_the_cloud_is_asked_before_anything_is_done_to_a_volume():
    item = held("n1", deleting=False, node=node(in_use=False))
    seen = Observation(name=NAME, date=NOW, pv=pv(), attachments=(item,))

    assert plan(RULES, seen) == (CheckVolume(ID),)
    checked = Observation(
        name=NAME,
        date=NOW,
        pv=pv(),
        attachments=(item,),
        is_checked=True,
        volume=volume(VolumeState.AVAILABLE),
    )
    assert plan(RULES, checked) == (CheckInstances(),)


def copies() -> Iterator[Observation]:
    """A claim with a source, in every state of what is known about it."""
    spec = {
        "storageClassName": "fast",
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "old"},
        "resources": {"requests": {"storage": "2Gi"}},
    }
    origins = (
        None,
        Origin(FromVolume(VolumeId("vol-old")), 2),
        Origin(FromVolume(VolumeId("vol-old")), 3),
        Unavailable("no answer"),
    )
    found = [
        replace(each, size_gib=size, source=source)
        for each in filter(None, VOLUMES)
        for size in (1, 2)
        for source in (None, FromVolume(VolumeId("vol-old")), FromSnapshot(SnapshotId("s")))
    ]
    metadata = {"name": "fast"}
    storage_class = made(StorageClass, {"metadata": metadata, "provisioner": DRIVER})
    for kept, origin, each, fresh in product(BOOLS, origins, (None, *found), (False, True)):
        ours = {PROVISIONERS[0]: DRIVER}
        item = claim(finalizers=[CLAIM_FINALIZER] if kept else None, spec=spec, annotations=ours)
        yield Observation(
            name=NAME,
            date=NOW,
            claim=item,
            storage_class=storage_class,
            origin=origin,
            volume=each,
            is_checked=kept,
            released=Released(None, item) if fresh else None,
        )


def test_a_claim_with_a_source_gets_a_copy_of_it_or_nothing():
    created = published = 0
    for seen in copies():
        steps = plan(RULES, seen)
        for step in steps:
            if isinstance(step, CreateVolume):
                created += 1
                assert step.spec.source == FromVolume(VolumeId("vol-old"))
                assert isinstance(seen.origin, Origin)
                assert step.spec.size_gib >= seen.origin.size_gib
        is_new = any(isinstance(step, CreateVolume) for step in steps)
        if any(isinstance(step, CreatePersistentVolume) for step in steps) and not is_new:
            published += 1
            assert seen.volume is not None
            if seen.is_checked:  # found, and not just created by this pass
                assert seen.volume.source == FromVolume(VolumeId("vol-old"))
                assert seen.volume.size_gib >= 2
                assert seen.released is not None
                assert seen.volume.state not in {VolumeState.CREATING, VolumeState.DELETING}
    assert created
    assert published
