"""Guards of volumes: what protects the data on them."""

from tests.mutants.mutant import Danger, Mutant

_DEVICES = "volumes/test_devices.py"
_FLEXVOLUME = "flexvolume/test_flexvolume.py"
_NODE, _BUSY = "tests/csi/test_node.py", "tests/csi/test_busy.py"
_OPERATIONS = "volumes/test_operations.py"
_PLAN = "controllers/volume/test_plan.py"
_ATTACHMENTS = "controllers/volume/test_attachments.py"
_CONTROLLER = "controllers/volume/test_controller.py"
_NO_FLEXVOLUME = "kubelets call the CSI driver, not that of FlexVolume"
_NO_CSI_CONTROLLER = (
    "volumes are attached by the volume controller, not by the CSI controller service"
)

VOLUMES = (
    Mutant(
        name="a device with data is formatted",
        module="volumes.devices",
        before="if found and not (is_begun and found == UNKNOWN):",
        after="if found and found != UNKNOWN and not is_begun:",
        tests=_DEVICES,
        danger=Danger.DELETION,
        scenario="volume-nodes",
    ),
    Mutant(
        name="the end of a device is not looked at before it is formatted",
        module="volumes.devices",
        before="yield size - edge, edge",
        after="",
        tests=_DEVICES,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="another filesystem is replaced",
        module="volumes.devices",
        before="found = await content(device)\n    is_begun",
        after='found = ""\n    is_begun',
        tests=_DEVICES,
        danger=Danger.DELETION,
        scenario="volume-nodes",
    ),
    Mutant(
        name="data between the edges of a device is overwritten",
        module="volumes.devices",
        before="for at in range(0, size, step)",
        after="for at in range(0)",
        tests=_DEVICES,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="the copy of a superblock is overwritten",
        module="volumes.devices",
        before="for at in COPIES if at + COPY <= size",
        after="for at in ()",
        tests=_DEVICES,
        danger=Danger.DELETION,
        unsimulated="copies of superblocks are not read of simulated devices",
    ),
    Mutant(
        name="a pod gets any directory of the node that the cloud names",
        module="volumes.devices",
        before="path.name == volume and path.is_dir()",
        after="path.is_dir()",
        tests=_DEVICES,
        danger=Danger.OWNERSHIP,
        unsimulated="simulated volumes are block devices",
    ),
    Mutant(
        name="a crafted superblock is computed with",
        module="volumes.devices",
        before="if log > LARGEST_BLOCK_LOG:",
        after="if False:",
        tests=_DEVICES,
    ),
    Mutant(
        name="a disk that shows the ID of another volume is taken",
        module="volumes.devices",
        before="path.name == volume and path.is_dir() else None",
        after="path.exists() else None",
        tests=_DEVICES,
        danger=Danger.OWNERSHIP,
        unsimulated="simulated volumes are block devices",
    ),
    Mutant(
        name="two operations on one volume run at once",
        module="volumes.busy",
        before="if taken:",
        after="if False:",
        tests="volumes/test_parameters.py",
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume that is still being created is returned",
        module="volumes.operations",
        before="if volume.state is VolumeState.CREATING:",
        after="if False:",
        tests=_OPERATIONS,
        unsimulated=_NO_CSI_CONTROLLER,
    ),
    Mutant(
        name="a detached volume is not waited for",
        module="volumes.operations",
        before="if found is None or instance not in {one.instance for one in found.attachments}:",
        after="if True:",
        tests=_OPERATIONS,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_CSI_CONTROLLER,
    ),
    Mutant(
        name="a volume is detached from a node that the cache does not show as its user",
        module="controllers.volume.attach",
        before="if not all(each.is_fresh for each in leaving):",
        after="if False:",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a claim with a source gets an empty volume",
        module="controllers.volume.provision",
        before="replace(spec, source=origin.source)",
        after="spec",
        tests="controllers/volume/test_sources.py",
        danger=Danger.DELETION,
    ),
    Mutant(
        name="a volume without the content of the source is used as a copy",
        module="controllers.volume.provision",
        before="is_copy(seen.volume, claim, spec.size_gib)",
        after="True",
        tests="controllers/volume/test_sources.py",
        danger=Danger.DELETION,
    ),
    Mutant(
        name="a snapshot of another namespace is copied",
        module="controllers.volume.source",
        before="reference.uid != snapshot.metadata.uid",
        after="False",
        tests="controllers/volume/test_sources.py",
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="a volume is deleted while it is copied",
        module="controllers.volume.plan",
        before="elif seen.shared_with or seen.copied_to:",
        after="elif seen.shared_with:",
        tests="controllers/volume/test_sources.py",
        danger=Danger.DELETION,
    ),
    Mutant(
        name="a pod names a volume that no PersistentVolume has",
        module="flexvolume.attachment",
        before="if recorded != options.volume:",
        after="if False:",
        tests=_FLEXVOLUME,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_FLEXVOLUME,
    ),
    Mutant(
        name="a PersistentVolume of another driver permits the use of a volume",
        module="flexvolume.attachment",
        before="flex.driver != self.driver",
        after="False",
        tests=_FLEXVOLUME,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_FLEXVOLUME,
    ),
    Mutant(
        name="a pod gets the disk that it names instead of that of its PersistentVolume",
        module="flexvolume.node",
        before="Path(mount.target).name == options.name",
        after="True",
        tests=_FLEXVOLUME,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_FLEXVOLUME,
    ),
    Mutant(
        name="a forged annotation gets a volume of another class",
        module="controllers.volume.provision",
        before="storage_class.provisioner != rules.driver",
        after="False",
        tests=_CONTROLLER,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a staging path with the mount of another volume counts as staged",
        module="csi.node",
        before="if not mounts.is_of_device(existing, device) or wanted",
        after="if wanted",
        tests=_NODE,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a pod gets the mount of another volume at the staging path",
        module="csi.node",
        before="if not is_own:",
        after="if False:",
        tests=_NODE,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume without a disk is published",
        module="csi.node",
        before=(
            "    if device is None:\n"
            "        raise CsiError(\n"
            "            Status.FAILED_PRECONDITION,\n"
            '            f"volume {request.volume_id} is not attached'
        ),
        after=(
            "    if device is None:\n"
            "        return\n"
            "        raise CsiError(\n"
            "            Status.FAILED_PRECONDITION,\n"
            '            f"volume {request.volume_id} is not attached'
        ),
        tests=_NODE,
        danger=Danger.OWNERSHIP,
        scenario="volume-nodes",
    ),
    Mutant(
        name="a failure of blkid counts as an empty device",
        module="volumes.devices",
        before="if error.code == NOTHING_FOUND:",
        after="if error.code is not None:",
        tests=_DEVICES,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="an answer of blkid without a type counts as an empty device",
        module="volumes.devices",
        before='or found.get("PTTYPE") or UNKNOWN',
        after='or found.get("PTTYPE") or ""',
        tests=_DEVICES,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume for readers is formatted",
        module="csi.node",
        before=(
            "    if not read_only:\n"
            "        await devices.make_filesystem(device, filesystem)\n"
            "        await devices.grow_unmounted"
        ),
        after=(
            "    if True:\n"
            "        await devices.make_filesystem(device, filesystem)\n"
            "        await devices.grow_unmounted"
        ),
        tests=_NODE,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="a FlexVolume for readers is formatted",
        module="flexvolume.node",
        before="if not options.read_only:",
        after="if True:",
        tests=_FLEXVOLUME,
        danger=Danger.DELETION,
        unsimulated=_NO_FLEXVOLUME,
    ),
    Mutant(
        name="the filesystem of a FlexVolume for readers is grown",
        module="flexvolume.node",
        before="    if options.read_only:\n        raise HostError",
        after="    if False:\n        raise HostError",
        tests=_FLEXVOLUME,
        danger=Danger.DELETION,
        unsimulated=_NO_FLEXVOLUME,
    ),
    Mutant(
        name="the disk that is mounted where a FlexVolume should be is grown",
        module="flexvolume.node",
        before="if mounted is not None and not mounts.is_of_device(mounted, device):",
        after="if False:",
        tests=_FLEXVOLUME,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_FLEXVOLUME,
    ),
    Mutant(
        name="the filesystem of a volume for readers is grown",
        module="csi.node",
        before="if all(each.is_read_only for each in mounts.mounts_of_device(device)):",
        after="if False:",
        tests=_NODE,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="a mount for writers serves a reader",
        module="volumes.mounts",
        before="if existing.is_read_only != read_only:",
        after="if existing.is_read_only and not read_only:",
        tests=_DEVICES,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a device that is mounted for writers is staged for readers",
        module="csi.node",
        before="mounts.check_access(existing, staging, read_only=read_only)",
        after="pass",
        tests=_NODE,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a file with content at the target is removed",
        module="volumes.mounts",
        before="elif target.is_file() and target.stat().st_size:",
        after="elif False:",
        tests=_DEVICES,
        danger=Danger.DELETION,
        unsimulated="simulated machines have no files at the targets of mounts",
    ),
    Mutant(
        name="a volume is deleted for a claim that lost its finalizer",
        module="controllers.volume.provision",
        before="CLAIM_FINALIZER not in finalizers(found) or ",
        after="",
        tests=_PLAN,
        danger=Danger.DELETION,
        scenario="volumes",
    ),
    Mutant(
        name="an unreadable attachment does not keep a volume attached",
        module="controllers.volume.cluster",
        before='({""} if listed.unreadable else set())',
        after="set()",
        tests=_ATTACHMENTS,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="an unreadable node has mounted nothing",
        module="controllers.volume.cluster",
        before="bool(listed.unreadable) or any(users)",
        after="any(users)",
        tests=_ATTACHMENTS,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a node that cannot be read counts as deleted",
        module="controllers.volume.cluster",
        before="            return await self._client.get(NODES, name)\n        except NotFound:",
        after="            return await self._client.get(NODES, name)\n        except Exception:",
        tests=_ATTACHMENTS,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a claim that cannot be read counts as deleted",
        module="controllers.volume.cluster",
        before=(
            "            return await self._client.get(self._resource, name, namespace=namespace)\n"
            "        except NotFound:"
        ),
        after=(
            "            return await self._client.get(self._resource, name, namespace=namespace)\n"
            "        except Exception:"
        ),
        tests=_CONTROLLER,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume in use is detached although the cloud does not answer for the machine",
        module="controllers.volume.attach",
        before="        case error:\n            machine, fix",
        after=(
            "        case CloudError():\n"
            '            return ""\n'
            "        case error:\n"
            "            machine, fix"
        ),
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a FlexVolume counts as detached if the cloud does not answer for the node",
        module="flexvolume.attachment",
        before='raise Unavailable(f"the cloud does not say',
        after='raise NotFound(f"the cloud does not say',
        tests=_FLEXVOLUME,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_FLEXVOLUME,
    ),
    Mutant(
        name="the finalizer of an attachment is removed before the last detachment",
        module="controllers.volume.reconciler",
        before=(
            "                    await self._parts.volumes.detach(cluster, volume, instance)\n"
            "                await attachments"
        ),
        after=(
            "                    gone = finalizer_patch(item, finalizer, adds=False)\n"
            "                    await attachments.patch(item, gone)\n"
            "                    await self._parts.volumes.detach(cluster, volume, instance)\n"
            "                await attachments"
        ),
        tests=_ATTACHMENTS,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a PersistentVolume is deleted before the last deletion of its volume",
        module="controllers.volume.reconciler",
        before=(
            "        await self._parts.volumes.delete(self._parts.rules.cluster, step.id)\n"
            "        if not is_deleting(step.volume):\n"
            "            await self._parts.cluster.delete_volume(step.volume)"
        ),
        after=(
            "        if not is_deleting(step.volume):\n"
            "            await self._parts.cluster.delete_volume(step.volume)"
        ),
        tests=_CONTROLLER,
        danger=Danger.LEAK,
        scenario="volumes",
    ),
    Mutant(
        name="a volume is attached while it is detached",
        module="controllers.volume.attach",
        before="elif volume.state in BUSY or (volume.attachments and is_moving):",
        after="elif volume.attachments and is_moving:",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume that is being detached is reported as attached",
        module="controllers.volume.attach",
        before="is_changing = volume.state in {VolumeState.ATTACHING, VolumeState.DETACHING}",
        after="is_changing = volume.state is VolumeState.ATTACHING",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="CSI attaches a volume that is being detached",
        module="volumes.operations",
        before="if attachment.instance == instance and found.state is not VolumeState.DETACHING:",
        after="if attachment.instance == instance:",
        tests=_OPERATIONS,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_CSI_CONTROLLER,
    ),
    Mutant(
        name="FlexVolume reports a volume that is being detached as attached",
        module="flexvolume.attachment",
        before="has_it and found is not None and found.state is not VolumeState.DETACHING",
        after="has_it",
        tests=_FLEXVOLUME,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_FLEXVOLUME,
    ),
    Mutant(
        name="a volume with the mark of another claim is used",
        module="volumes.operations",
        before="if volume.owner != spec.owner:",
        after="if False:",
        tests=f"{_OPERATIONS} {_CONTROLLER}",
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume grows for a claim that only has its name",
        module="controllers.volume.objects",
        before="return reference is not None and reference.uid == claim.metadata.uid",
        after="return reference is not None",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volumes",
    ),
    Mutant(
        name="a volume is not reserved while it is unpublished",
        module="csi.node",
        before=(
            "        with self.busy.only(request.volume_id):\n"
            "            await mounts.unmount(Path(request.target_path))"
        ),
        after="        if True:\n            await mounts.unmount(Path(request.target_path))",
        tests=_BUSY,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume is not reserved while it is unstaged",
        module="csi.node",
        before=(
            "        with self.busy.only(request.volume_id):\n"
            "            await mounts.unmount(Path(request.staging_target_path), remove=False)"
        ),
        after=(
            "        if True:\n"
            "            await mounts.unmount(Path(request.staging_target_path), remove=False)"
        ),
        tests=_BUSY,
        danger=Danger.OWNERSHIP,
        scenario="volume-nodes",
    ),
    Mutant(
        name="another filesystem is replaced because an earlier format was interrupted",
        module="volumes.devices",
        before="if found and not (is_begun and found == UNKNOWN):",
        after="if found and not is_begun:",
        tests=_DEVICES,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume is deleted for a PersistentVolume that was replaced",
        module="controllers.volume.plan",
        before="if fresh.metadata.uid != pv.metadata.uid:",
        after="if False:",
        tests=_PLAN,
        danger=Danger.DELETION,
        scenario="volumes",
    ),
    Mutant(
        name="a volume is deleted that another claim released",
        module="controllers.volume.plan",
        before="if before is None or after is None or before.uid != after.uid:",
        after="if before is None or after is None:",
        tests=_PLAN,
        danger=Danger.DELETION,
        scenario="volumes",
    ),
    Mutant(
        name="a volume is deleted whose claim exists",
        module="controllers.volume.plan",
        before=('    if claim is not None:\n        return f"its claim'),
        after=('    if False:\n        return f"its claim'),
        tests=_PLAN,
        danger=Danger.DELETION,
        scenario="volumes",
    ),
    Mutant(
        name="the volume of a claim that was bound meanwhile is deleted",
        module="controllers.volume.provision",
        before=(' or bound_to(found) == seen.name:\n        return "the claim has changed'),
        after=(':\n        return "the claim has changed'),
        tests=_PLAN,
        danger=Danger.DELETION,
        scenario="volumes",
    ),
    Mutant(
        name="a volume that another PersistentVolume has is deleted with an abandoned claim",
        module="controllers.volume.provision",
        before="if volume is None or seen.shared_with:  #",
        after="if volume is None:  #",
        tests=_PLAN,
        danger=Danger.DELETION,
        scenario="volumes",
    ),
    Mutant(
        name="one list without the volume of an abandoned claim is believed",
        module="controllers.volume.provision",
        before="if volume is None and seen.absent_for < SECOND_LOOK:",
        after="if False:",
        tests=_PLAN,
        danger=Danger.LEAK,
        scenario="volumes",
    ),
    Mutant(
        name="a claim that was replaced under its name gets a volume of the former one",
        module="controllers.volume.provision",
        before="if fresh.claim is None or fresh.claim.metadata.uid != claim.metadata.uid:",
        after="if fresh.claim is None:",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volumes",
    ),
    Mutant(
        name="a claim that is being deleted gets a volume",
        module="controllers.volume.provision",
        before="if is_deleting(fresh.claim) and not is_deleting(claim):",
        after="if False:",
        tests=_PLAN,
        danger=Danger.LEAK,
        scenario="volumes",
    ),
    Mutant(
        name="a claim that only has the name of a deleted one loses its finalizer",
        module="controllers.volume.cluster",
        before="return found if found and found.metadata.uid == reference.uid else None",
        after="return found",
        tests=_CONTROLLER,
        danger=Danger.OWNERSHIP,
        scenario="volumes",
    ),
    Mutant(
        name="a stray is detached although an attachment does not name its machine",
        module="controllers.volume.attach",
        before="if not strays or None in known:",
        after="if not strays:",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a stray is detached while the cloud changes the volume",
        module="controllers.volume.attach",
        before=("seen.is_in_use or volume.state in BUSY:\n        return"),
        after=("seen.is_in_use:\n        return"),
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume is detached while the cloud changes it",
        module="controllers.volume.attach",
        before=(
            "    elif volume is not None and volume.state in BUSY:\n"
            '        yield Wait(f"volume {id_} is {volume.state}")\n'
            "    else:\n"
            "        forced"
        ),
        after=("    else:\n        forced"),
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="an attachment without its machine loses its finalizer",
        module="controllers.volume.attach",
        before="elif held.instance is None and holders:",
        after="elif False:",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="the finalizer of the external attacher is removed before the attachments",
        module="controllers.volume.plan",
        before="if rules.attach_finalizer in has and not seen.attachments:",
        after="if rules.attach_finalizer in has:",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volumes",
    ),
    Mutant(
        name="two nodes get one volume",
        module="controllers.volume.attach",
        before="elif first is not None and each is not first:",
        after="elif False:",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume that another machine has is attached",
        module="controllers.volume.attach",
        before=("    elif volume.attachments:\n        others"),
        after=("    elif False:\n        others"),
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a machine that one answer lacks is off",
        module="controllers.volume.attach",
        before="case Absent() if held.gone_for >= GONE_AFTER and not is_ready(node):",
        after="case Absent() if not is_ready(node):",
        tests=_PLAN,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="the attachment to another machine is returned",
        module="volumes.operations",
        before="if attachment.instance == instance and found.state",
        after="if found.state",
        tests=_OPERATIONS,
        danger=Danger.OWNERSHIP,
        unsimulated=_NO_CSI_CONTROLLER,
    ),
    Mutant(
        name="a reader gets a mount for writers",
        module="volumes.mounts",
        before='*(["ro"] if read_only else [])',
        after="",
        tests=_DEVICES,
        danger=Danger.OWNERSHIP,
        scenario="volume-writers",
    ),
    Mutant(
        name="a volume with the mount option ro is formatted",
        module="csi.node",
        before='in READ_ONLY_MODES or "ro" in options',
        after="in READ_ONLY_MODES",
        tests=_NODE,
        danger=Danger.DELETION,
        scenario="volume-writers",
    ),
    Mutant(
        name="a path is read as the source of a claim",
        module="controllers.volume.source",
        before="    if is_used and not OBJECT_NAME.fullmatch(reference.name):",
        after="    if False:",
        tests="test_fixes.py",
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="the name of a claim's source is printed as it is",
        module="controllers.volume.source",
        before='LONGEST_KIND)} {quoted(reference.name)}"',
        after='LONGEST_KIND)} {reference.name}"',
        tests="test_fixes.py",
        danger=Danger.OWNERSHIP,
    ),
)
