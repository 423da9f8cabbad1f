"""Guards of volumes: what protects the data on them."""

from tests.mutants.mutant import Danger, Mutant

_DEVICES = "volumes/test_devices.py"

VOLUMES = (
    Mutant(
        name="a device with data is formatted",
        module="volumes.devices",
        before="if found and not (is_begun and found == UNKNOWN):",
        after="if found and found != UNKNOWN and not is_begun:",
        tests=_DEVICES,
        danger=Danger.DELETION,
    ),
    Mutant(
        name="the end of a device is not looked at before it is formatted",
        module="volumes.devices",
        before="return is_whole and not any(first) and not any(last)",
        after="return is_whole and not any(first)",
        tests=_DEVICES,
        danger=Danger.DELETION,
    ),
    Mutant(
        name="another filesystem is replaced",
        module="volumes.devices",
        before="found = await content(device)\n    is_begun",
        after='found = ""\n    is_begun',
        tests=_DEVICES,
        danger=Danger.DELETION,
    ),
    Mutant(
        name="a disk that shows the ID of another volume is taken",
        module="volumes.devices",
        before="return path if hint and path.is_dir() else None",
        after="return path if hint and path.exists() else None",
        tests=_DEVICES,
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="two operations on one volume run at once",
        module="volumes.busy",
        before="if taken:",
        after="if False:",
        tests="volumes/test_parameters.py",
    ),
    Mutant(
        name="a volume that is still being created is returned",
        module="volumes.operations",
        before="if volume.state is VolumeState.CREATING:",
        after="if False:",
        tests="volumes/test_operations.py",
    ),
    Mutant(
        name="a detached volume is not waited for",
        module="volumes.operations",
        before="if found is None or instance not in {one.instance for one in found.attachments}:",
        after="if True:",
        tests="volumes/test_operations.py",
        danger=Danger.OWNERSHIP,
    ),
    Mutant(
        name="a volume is detached from a node that the cache does not show as its user",
        module="controllers.volume.attach",
        before="if not all(each.is_fresh for each in leaving):",
        after="if False:",
        tests="controllers/volume/test_plan.py",
        danger=Danger.OWNERSHIP,
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
)
