"""Build CSI sidecars of the Kubernetes project and the snapshot-controller, once, into a cache.

Prints a folder on standard output, and progress on standard error. The folder has links to the
binaries, and in `crds` the definitions of VolumeSnapshots. Exits with 3 if there is no Go. Takes
some minutes on two cores.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tools.build_control_plane import NO_GO, cache_folder, find_go
from tools.go_program import TOOLS, GoProgram

MODULE = "csi-sidecars"
SOURCE = "github.com/kubernetes-csi"
SNAPSHOTTER = f"{SOURCE}/external-snapshotter"
PROGRAMS = (
    GoProgram("csi-provisioner", f"{SOURCE}/external-provisioner/v5/cmd/csi-provisioner"),
    GoProgram(MODULE, f"{SOURCE}/external-resizer/cmd/csi-resizer"),
    GoProgram(MODULE, f"{SNAPSHOTTER}/v8/cmd/csi-snapshotter"),
    GoProgram(MODULE, f"{SNAPSHOTTER}/v8/cmd/snapshot-controller"),
)


def main() -> int:
    folder = PROGRAMS[-1].binary().parent
    for program in PROGRAMS:
        if code := program.build():
            return code
        if program.binary().parent != folder:
            link = folder / program.binary().name
            folder.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(program.binary())
    if not (folder / "crds").exists() and (code := _copy_crds(folder / "crds")):
        return code
    print(folder)
    return 0


def _copy_crds(target: Path) -> int:
    """Copy the definitions from the module that the snapshotter requires."""
    go = find_go(cache_folder())
    if go is None:
        return NO_GO
    command = [str(go), "list", "-m", "-f={{.Dir}}", f"{SNAPSHOTTER}/client/v8"]
    listed = subprocess.run(command, cwd=TOOLS / MODULE, capture_output=True, text=True, check=True)
    source = Path(listed.stdout.strip()) / "config" / "crd"
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
