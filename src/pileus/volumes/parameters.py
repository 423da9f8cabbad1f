"""The parameters of a StorageClass or VolumeSnapshotClass, and the identity of what is created."""

from collections.abc import Mapping
from dataclasses import field

from pileus.cloud.errors import Misconfigured
from pileus.cloud.model import no_labels
from pileus.dataclass import dataclass
from pileus.suggest import did_you_mean

GIB = 1 << 30
DRIVER_SUFFIX = ".csi.pileus.dev"
SIDECAR_PREFIX = "csi.storage.k8s.io/"
"""Parameters for sidecars and kubelet, such as `csi.storage.k8s.io/fstype`."""
FILESYSTEM = f"{SIDECAR_PREFIX}fstype"
TYPE, ZONE = "type", "zone"
KNOWN = (TYPE, ZONE, FILESYSTEM)
LABELS = {
    f"{SIDECAR_PREFIX}pvc/name": "kubernetes.io/created-for/pvc/name",
    f"{SIDECAR_PREFIX}pvc/namespace": "kubernetes.io/created-for/pvc/namespace",
    f"{SIDECAR_PREFIX}pv/name": "kubernetes.io/created-for/pv/name",
}
"""Parameters that external-provisioner adds (`--extra-create-metadata`), and their tags."""
ALWAYS_DONE = frozenset({("force-create", "true"), ("type", "snapshot")})
"""Parameters of a VolumeSnapshotClass of Cinder CSI: volumes are copied while they are attached."""
FILESYSTEMS = ("ext4", "ext3", "ext2", "xfs", "btrfs")
DEFAULT_FILESYSTEM = "ext4"
DEVICE = "device"
"""The key of the device in what the node plugin gets about an attachment (`publish_context`)."""


class InvalidParameters(Misconfigured):
    """A parameter, filesystem or secret is wrong. The message names it and the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    type: str = ""
    """Volume type of the cloud; empty: its default."""
    zone: str = ""
    """The only acceptable zone; empty: those of the topology."""
    filesystem: str = DEFAULT_FILESYSTEM
    labels: Mapping[str, str] = field(default_factory=no_labels, hash=False)
    """Tags for people: the claim for which the volume was created."""


def driver_name(cloud: str) -> str:
    """Returns the name of the CSI driver, and of the provisioner, of a cloud."""
    return f"{cloud}{DRIVER_SUFFIX}"


def claim_owner(uid: str) -> str:
    """Returns `Owner.uid` of the volume for a claim: the same in all users of this package.

    external-provisioner asks for a volume with this name, so that a cluster can move from sidecars
    to the volume controller and back.
    """
    return f"pvc-{uid}"


def read_parameters(given: Mapping[str, str]) -> Parameters:
    """Returns the parameters of a StorageClass. Raises InvalidParameters with every mistake."""
    problems = [
        f'unknown parameter "{name}"{did_you_mean(name, KNOWN)}'
        for name in given
        if name not in KNOWN and not name.startswith(SIDECAR_PREFIX)
    ]
    if problems:
        raise InvalidParameters(
            f"StorageClass: {'; '.join(problems)}. Known: {', '.join(KNOWN)}. "
            "Fix: create the StorageClass again without it; parameters cannot be changed"
        )
    return Parameters(
        type=given.get(TYPE, ""),
        zone=given.get(ZONE, ""),
        filesystem=read_filesystem(given.get(FILESYSTEM, "")),
        labels={label: given[name] for name, label in LABELS.items() if given.get(name)},
    )


def read_snapshot_parameters(given: Mapping[str, str]) -> None:
    """Raises InvalidParameters for a parameter of a VolumeSnapshotClass that has no effect.

    Those of Cinder CSI that ask for what is always done are accepted.
    """
    for name, value in given.items():
        if name.startswith(SIDECAR_PREFIX) or (name, value) in ALWAYS_DONE:
            continue
        if (name, value) == ("type", "backup"):
            raise InvalidParameters(
                "VolumeSnapshotClass: type backup is not supported: the driver creates snapshots. "
                "Fix: create the VolumeSnapshotClass again without it, and backups with a tool "
                "that copies snapshots, such as Velero"
            )
        raise InvalidParameters(
            f'VolumeSnapshotClass: unknown parameter {name} "{value}". Fix: create the '
            "VolumeSnapshotClass again without it"
        )


def read_filesystem(name: str) -> str:
    """Returns the filesystem; ext4 if the name is empty. Raises InvalidParameters."""
    if not name:
        return DEFAULT_FILESYSTEM
    if name not in FILESYSTEMS:
        known = ", ".join(FILESYSTEMS)
        hint = did_you_mean(name, FILESYSTEMS)
        raise InvalidParameters(f'unknown filesystem "{name}"{hint}. Known: {known}')
    return name


def check_secrets(given: Mapping[str, str]) -> None:
    """Raises InvalidParameters for any secret, without its value: no provider uses one.

    Ignoring a secret could make a user believe that the volume is encrypted with it.
    """
    if given:
        raise InvalidParameters(
            f"the driver uses no secrets, but got {', '.join(sorted(given))}. Fix: remove the "
            f"parameters {SIDECAR_PREFIX}*-secret-name from the StorageClass"
        )


def whole_gib(size: int) -> int:
    """Returns a size in bytes as GiB, rounded up."""
    return -(-size // GIB)
