"""Build a control plane of the oldest Kubernetes that is supported, once, into a cache.

Prints the folder of the binaries on standard output, and progress on standard error; with
`--version` only its version. Exits with 3 if there is no Go. API server and controller manager take
about 15 minutes on two cores; etcd and kubectl are those of `build_control_plane`.
"""

import subprocess
import sys
from pathlib import Path

from tools.build_control_plane import COMMANDS
from tools.go_program import GoProgram

VERSION = "v1.30.14"
STAMPS = {"gitVersion": VERSION, "gitMajor": "1", "gitMinor": VERSION.split(".")[1]}
LINK = " ".join([
    "-s -w",
    *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in STAMPS.items()),
])
FLAGS = ("-trimpath", "-buildvcs=false", "-ldflags", LINK)
BUILT = ("kube-apiserver", "kube-controller-manager")
PROGRAMS = [
    GoProgram("control-plane-oldest", f"k8s.io/kubernetes/cmd/{name}", FLAGS) for name in BUILT
]


def main() -> int:
    if "--version" in sys.argv[1:]:
        print(VERSION)
        return 0
    for program in PROGRAMS:
        if code := program.build():
            return code
    folder = PROGRAMS[0].binary().parent
    newest = subprocess.run(
        [sys.executable, "-m", "tools.build_control_plane"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for name in COMMANDS.keys() - set(BUILT):
        link(folder / name, Path(newest.stdout.strip()) / name)
    print(folder)
    return 0


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


if __name__ == "__main__":
    sys.exit(main())
