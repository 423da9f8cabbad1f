"""Builds the archive of the krew plugin, and writes the manifest that names its checksum.

The archive is reproducible: the same files give the same bytes.
"""

import gzip
import hashlib
import io
import sys
import tarfile
from pathlib import Path

import yaml

from pileus.version import PILEUS

ROOT = Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "deploy/krew/pileus.yaml"
ARCHIVE = "kubectl-pileus.tar.gz"
HOMEPAGE = "https://github.com/OWNER/pileus"
"""A copy of the repository does not know its owner."""
SYSTEMS = ("linux", "darwin")
FILES = {"kubectl-pileus": ROOT / "deploy/krew/kubectl-pileus", "LICENSE": ROOT / "LICENSE"}


def archive() -> bytes:
    """Returns the archive."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as made:
        for name, path in FILES.items():
            content = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o755 if name == "kubectl-pileus" else 0o644
            made.addfile(member, io.BytesIO(content))
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as file:
        file.write(tar.getvalue())
    return packed.getvalue()


def manifest(content: bytes) -> str:
    """Returns the manifest for an archive."""
    platform = {
        "uri": f"{HOMEPAGE}/releases/download/v{PILEUS}/{ARCHIVE}",
        "sha256": hashlib.sha256(content).hexdigest(),
        "bin": "kubectl-pileus",
    }
    platforms = [{"selector": {"matchLabels": {"os": system}}, **platform} for system in SYSTEMS]
    described = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "pileus"},
        "spec": {
            "version": f"v{PILEUS}",
            "homepage": HOMEPAGE,
            "shortDescription": "Plan, explain and history of the cloud-controller-manager Pileus",
            "description": (
                "Shows what the cloud-controller-manager Pileus would change, explains the state "
                "of nodes and Services, and prints the history of its decisions.\n"
            ),
            "caveats": "Needs the command pileus: see the page of the project.\n",
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(described, sort_keys=False)


def main() -> int:
    content = archive()
    MANIFEST.write_text(manifest(content))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_bytes(content)
    print(f"wrote {MANIFEST.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
