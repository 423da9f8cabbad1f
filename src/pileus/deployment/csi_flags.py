"""Flags of `pileus manifests` for the CSI driver."""

from pileus.cloud.choice import CloudSettings
from pileus.deployment.choice import KUBELET, SIDECARS, CsiChoice, InvalidChoice, Shape
from pileus.settings.config import Config
from pileus.settings.flags import Flag, switch
from pileus.settings.kinds import STRING
from pileus.settings.values import Values

CSI = switch("csi", "Also the CSI driver: controller with sidecars, node plugin, StorageClass.")
WITHOUT_SIDECARS = switch(
    "csi-without-sidecars",
    "Only the node plugin of the CSI driver: the manager's volume controller does the rest.",
)
SNAPSHOTS = switch(
    "csi-snapshots",
    "Also csi-snapshotter and a VolumeSnapshotClass; the CRDs of snapshots must be installed.",
)
REGISTRY = Flag(
    "csi-sidecar-registry", STRING, SIDECARS, "Registry of the sidecars' images.", only_flag=True
)
NODE_IMAGE = Flag(
    "csi-node-image",
    STRING,
    "",
    "Image of the node plugin, with mount, mkfs and blkid; empty: that of the manager.",
    only_flag=True,
)
KUBELET_FOLDER = Flag(
    "kubelet-dir", STRING, KUBELET, "Folder of kubelets, for the CSI driver.", only_flag=True
)
CSI_FLAGS = (CSI, WITHOUT_SIDECARS, SNAPSHOTS, REGISTRY, NODE_IMAGE, KUBELET_FOLDER)


def csi_choice(values: Values, config: Config, shape: Shape) -> CsiChoice | None:
    """Returns what the flags ask for; None without --csi. Raises InvalidChoice."""
    if not values[CSI]:
        for flag in CSI_FLAGS:
            if values.given(flag) and flag is not CSI:
                raise InvalidChoice(f"--{flag.name} needs --{CSI.name}")
        return None
    if len(config[CloudSettings].clouds) > 1:
        raise InvalidChoice(f"--{CSI.name}: a driver serves one cloud; run the command for each")
    sidecars = not values[WITHOUT_SIDECARS]
    if values[SNAPSHOTS] and not sidecars:
        raise InvalidChoice(
            f"--{SNAPSHOTS.name} and --{WITHOUT_SIDECARS.name} exclude each other: csi-snapshotter "
            "is a sidecar"
        )
    if sidecars and shape is Shape.EXTERNAL:
        raise InvalidChoice(
            f"--{CSI.name} and --external: the controller part runs in a pod. Add "
            f"--{WITHOUT_SIDECARS.name}, or remove --external"
        )
    if not values[KUBELET_FOLDER].startswith("/"):
        raise InvalidChoice(
            f'--{KUBELET_FOLDER.name}: "{values[KUBELET_FOLDER]}" is not an absolute path'
        )
    return CsiChoice(
        sidecars=sidecars,
        snapshots=values[SNAPSHOTS],
        registry=values[REGISTRY].rstrip("/"),
        node_image=values[NODE_IMAGE],
        kubelet=values[KUBELET_FOLDER].rstrip("/"),
    )
