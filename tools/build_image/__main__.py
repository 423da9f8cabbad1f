"""Builds the container image of the manager without a daemon, without root, and without a registry.

    python -m tools.build_image                              dist/pileus-VERSION.oci.tar
    python -m tools.build_image --extras lab --image NAME    with the laboratory, under another name
    python -m tools.build_image --extras csi                 with the CSI driver and mount, mkfs, …
    python -m tools.build_image --arch amd64,arm64           for both architectures, in one archive
    python -m tools.build_image --root FOLDER                its files only, for the Containerfile
    python -m tools.build_image --renew-lock LOCK            update a lock of Debian packages

The image has Debian's Python and certificates, the locked wheels and Pileus; no shell and no
package manager. Two builds of a commit give the same bytes. Exits with 3 if that fails.
"""

import argparse
import datetime as dt
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.apt import Unavailable
from tools.build_control_plane import cache_folder
from tools.build_image import debian, filesystem, oci, sbom, wheels
from tools.build_image.architecture import ARCHITECTURES, Architecture, native
from tools.build_image.debian import Package
from tools.build_image.wheels import ROOT, SITE, Wheel

from pileus.suggest import did_you_mean
from pileus.version import PILEUS

DEBIAN, DEBIAN_CSI = "debian", "debian-csi"
"""The names of the locks of Debian packages, before that of the architecture."""
LAB = "lab"
CSI = "csi"
"""The extra whose image has the programs that mount and format volumes."""
UNAVAILABLE = 3
BILL = "usr/share/pileus/sbom.cdx.json"
REFERENCE = re.compile(r"[a-z0-9][a-z0-9._:/-]*[a-z0-9](:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?")
CONFIG = {
    "User": f"{filesystem.USER}:{filesystem.USER}",
    "Entrypoint": ["/usr/local/bin/cloud-controller-manager"],
    "WorkingDir": "/",
    "Env": [
        "PATH=/usr/local/bin:/usr/bin",
        "LANG=C.UTF-8",
        "PYTHONDONTWRITEBYTECODE=1",
    ],
}


@dataclass(frozen=True)
class Content:
    """What goes into the image."""

    architecture: Architecture
    packages: dict[Package, Path]
    chosen: dict[str, Wheel]
    """The wheels of this checkout and of the lock, by name."""
    library: list[Wheel]
    """Those of the lock that the product needs; what only the laboratory needs comes with it."""

    @property
    def program(self) -> Wheel:
        return self.chosen["pileus"]


def main() -> int:
    given = _arguments()
    try:
        if given.renew_lock:
            for lock in given.renew_lock:
                debian.renew_lock(lock)
            return 0
        with tempfile.TemporaryDirectory(prefix="pileus-image-") as scratch:
            build(given, Path(scratch))
    except Unavailable as error:
        say(f"not available: {error}")
        return UNAVAILABLE
    return 0


def build(given: argparse.Namespace, scratch: Path) -> None:
    started = time.monotonic()
    own = wheels.own(scratch / "wheels")
    images: list[oci.Image] = []
    for architecture in given.arch or (native(),):
        content = gather(given.extras, own, architecture)
        lower = lower_layers(content, scratch if given.fresh else cache_folder() / "image")
        program = scratch / architecture.name
        fill_program(program, content, given.image, lower)
        if given.root:
            write_root(given.root, lower, program)
            say(f"wrote the files of {given.image} to {given.root}")
            return
        images.append(assemble(given.image, content, lower, program))
        bill = given.output.with_suffix(f"{bill_mark(given, architecture)}.cdx.json")
        given.output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(program / BILL, bill)
        for each in images[-1].layers:
            say(f"{architecture.name}, layer {each.name}: {len(each.blob) / 1e6:.1f} MB")
        say(f"bill of materials: {bill}")
    digest = oci.write_archive(given.output, *images)
    size = given.output.stat().st_size / 1e6
    say(f"{given.output}: {size:.1f} MB, {digest}, {time.monotonic() - started:.0f} s")
    print(given.image)


def bill_mark(given: argparse.Namespace, architecture: Architecture) -> str:
    """Returns what the name of the bill has besides: each architecture has a bill of its own."""
    return f".{architecture.name}" if len(given.arch) > 1 else ""


def assemble(reference: str, content: Content, lower: Path, program: Path) -> oci.Image:
    """Returns the image with the files of these folders."""
    layers = [oci.read_layer(lower, "base"), oci.read_layer(lower, "library")]
    layers.append(oci.layer("program", program))
    name = content.architecture.name
    return oci.Image(reference, _created(), CONFIG, _labels(), layers, name)


def write_root(folder: Path, lower: Path, program: Path) -> None:
    """Copies the files of all layers into the folder."""
    for each in (lower / "base", lower / "library", program):
        shutil.copytree(each, folder, symlinks=True, dirs_exist_ok=True)


def gather(extras: tuple[str, ...], own: dict[str, Wheel], architecture: Architecture) -> Content:
    """Returns what goes into an image with these extras of Pileus. `own`: its wheels."""
    declared = own["pileus"].metadata.get_all("Provides-Extra") or []
    for each in extras:
        if each not in declared:
            known = f"{did_you_mean(each, declared)}; known: {', '.join(declared)}"
            sys.exit(f'image: unknown extra "{each}"{known}')
    packages = debian.archives(architecture.lock(DEBIAN))
    if CSI in extras:
        packages |= debian.archives(architecture.lock(DEBIAN_CSI))
    available = {**wheels.locked(architecture), **own}
    product = wheels.closure([each for each in extras if each != LAB], available)
    library = [wheel for name, wheel in product.items() if name not in wheels.SOURCES]
    return Content(architecture, packages, wheels.closure(extras, available), library)


def lower_layers(content: Content, folder: Path) -> Path:
    """Returns a folder with the files and archives of the layers below Pileus.

    They change with the locks and this tool alone, and so are made once per cache.
    """
    shaping = sorted(Path(__file__).parent.glob("*.py"))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in shaping))
    key.update("".join(each.sha256 for each in (*content.packages, *content.library)).encode())
    made = folder / key.hexdigest()[:16]
    if not made.exists():
        say("making the layers below Pileus (once, about half a minute)")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as scratch:
            whole = Path(scratch, "whole")
            _fill_lower(whole, content, _python(content, folder, whole))
            if not made.exists():  # another build may have been quicker
                whole.rename(made)
    return made


def fill_program(root: Path, content: Content, reference: str, lower: Path) -> None:
    """Fills the folder of the uppermost layer: Pileus, its laboratory, the bill of materials."""
    for wheel in content.chosen.values():
        if wheel.name not in wheels.SOURCES and wheel not in content.library:
            wheel.unpack(root)
    for name in sorted(wheels.SOURCES):
        if name in content.chosen:
            content.chosen[name].unpack(root)
            wheels.write_scripts(content.chosen[name], root)
    filesystem.compile_all(root, SITE, _python(content, lower.parent, lower))
    bill = root / BILL
    bill.parent.mkdir(parents=True)
    bill.write_text(
        sbom.document(
            reference,
            content.architecture.name,
            content.program,
            content.packages,
            content.chosen.values(),
        )
    )


def _python(content: Content, folder: Path, lower: Path) -> Path:
    """Returns the base layer whose Python runs on this machine: its own, or that of another image.

    Both have the same version of Python, and so write the same bytecode.
    """
    machine = native()
    if content.architecture is machine:
        return lower / "base"
    packages = debian.archives(machine.lock(DEBIAN))
    return lower_layers(Content(machine, packages, {}, []), folder) / "base"


def _fill_lower(folder: Path, content: Content, python: Path) -> None:
    base = folder / "base"
    filesystem.fill_base(base, content.packages)
    filesystem.compile_all(base, "usr/lib/python3.11", python)
    for wheel in content.library:
        wheel.unpack(folder / "library")
    if content.library:
        filesystem.compile_all(folder / "library", SITE, python)
    for name in ("base", "library"):
        oci.keep_layer(folder, oci.layer(name, folder / name))


def say(text: str) -> None:
    print(f"image: {text}", file=sys.stderr, flush=True)


def _labels() -> dict[str, str]:
    revision = _git("rev-parse", "HEAD")
    return {
        "org.opencontainers.image.title": "pileus",
        "org.opencontainers.image.description": "Kubernetes cloud-controller-manager",
        "org.opencontainers.image.version": PILEUS,
        "org.opencontainers.image.licenses": "Apache-2.0",
        **({"org.opencontainers.image.revision": revision} if revision else {}),
    }


def _created() -> str:
    """Returns SOURCE_DATE_EPOCH, the time of the commit, or 1980: never the time of the build."""
    given = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct") or oci.TIME
    moment = dt.datetime.fromtimestamp(int(given), dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.build_image", description=__doc__)
    add = parser.add_argument
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--extras", default="", type=_names, help="extras of pileus, comma-separated"
    )
    add("--image", type=_reference, default=f"pileus:{PILEUS}", help="reference (%(default)s)")
    add("--output", type=Path, help="archive to write")
    add(
        "--arch",
        default=(),
        type=_architectures,
        help="amd64, arm64 or both, comma-separated; default: that of this machine",
    )
    add("--root", type=Path, help="folder to write the files to, and no archive")
    add("--fresh", action="store_true", help="make every layer again")
    add(
        "--renew-lock", type=Path, nargs="+", metavar="LOCK", help="update locks of Debian packages"
    )
    given = parser.parse_args()
    name = given.image.rpartition("/")[2].replace(":", "-")
    given.output = given.output or ROOT / "dist" / f"{name}.oci.tar"
    return given


def _reference(text: str) -> str:
    if not REFERENCE.fullmatch(text):
        raise argparse.ArgumentTypeError(f'"{text}" is not a reference such as registry/pileus:1.0')
    return text if ":" in text.rpartition("/")[2] else f"{text}:{PILEUS}"


def _architectures(text: str) -> tuple[Architecture, ...]:
    for each in _names(text):
        if each not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise argparse.ArgumentTypeError(f'"{each}" is not one of {known}')
    return tuple(ARCHITECTURES[each] for each in dict.fromkeys(_names(text)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


if __name__ == "__main__":
    sys.exit(main())
