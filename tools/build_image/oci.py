"""Layers, configuration and archive of an image, as the OCI image specification describes them.

The same files give the same bytes: entries are sorted, owned by root and dated 1980.
"""

import gzip
import hashlib
import io
import json
import stat
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
TIME = 315532800
"""1980-01-01: zip files, and so wheels, know no earlier time."""
DEFAULT_REGISTRY = "docker.io/library"


@dataclass(frozen=True)
class Layer:
    """One layer: its compressed bytes, and the digest of the uncompressed ones."""

    name: str
    blob: bytes
    diff_id: str


@dataclass(frozen=True)
class Image:
    """Everything that the archive states about an image."""

    reference: str
    created: str
    config: Mapping[str, object]
    labels: Mapping[str, str]
    layers: Sequence[Layer]
    architecture: str = "amd64"


def layer(name: str, root: Path) -> Layer:
    """Returns the layer with the files of a folder."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            _add(archive, path, str(path.relative_to(root)))
    content = plain.getvalue()
    return Layer(name, gzip.compress(content, 9, mtime=0), digest(content))


def keep_layer(folder: Path, kept: Layer) -> None:
    """Writes a layer to files of its name, for read_layer()."""
    (folder / f"{kept.name}.tar.gz").write_bytes(kept.blob)
    (folder / f"{kept.name}.diff_id").write_text(kept.diff_id)


def read_layer(folder: Path, name: str) -> Layer:
    blob = (folder / f"{name}.tar.gz").read_bytes()
    return Layer(name, blob, (folder / f"{name}.diff_id").read_text())


def write_archive(path: Path, first: Image, *more: Image) -> str:
    """Writes an OCI archive; returns its digest. `docker load` reads that of one image, too.

    Several images are one image for several architectures: the archive has an index of them.
    """
    files: dict[str, bytes] = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"})}
    described: list[dict[str, object]] = []
    for image in (first, *more):
        config = _json(_config(image))
        manifest = _json(_manifest(image, config))
        for blob in (config, manifest, *(each.blob for each in image.layers)):
            files[f"blobs/sha256/{_hex(blob)}"] = blob
        described.append(_described(MANIFEST_TYPE, manifest) | {"platform": _platform(image)})
        files["manifest.json"] = _json([_docker(image, config)])
    if more:
        del files["manifest.json"]  # it cannot name two images for two architectures
        whole = _json(_index(described))
        files[f"blobs/sha256/{_hex(whole)}"] = whole
        described = [_described(INDEX_TYPE, whole)]
    named = described[0] | {"annotations": _names(first)}
    files["index.json"] = _json(_index([named]))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), TIME
            archive.addfile(entry, io.BytesIO(content))
    return str(named["digest"])


def _index(described: Sequence[Mapping[str, object]]) -> dict[str, object]:
    return {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": described}


def _platform(image: Image) -> dict[str, str]:
    return {"architecture": image.architecture, "os": "linux"}


def full_name(reference: str) -> str:
    """Returns a reference as Kubernetes completes it, with registry and project."""
    first, slash, _ = reference.partition("/")
    has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    if has_registry:
        return reference
    return f"docker.io/{reference}" if slash else f"{DEFAULT_REGISTRY}/{reference}"


def digest(content: bytes) -> str:
    return f"sha256:{_hex(content)}"


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime = TIME
    if path.is_symlink():
        entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, str(path.readlink())
        archive.addfile(entry)
    elif path.is_dir():
        entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
        archive.addfile(entry)
    else:
        status = path.stat()
        entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        with path.open("rb") as file:
            archive.addfile(entry, file)


def _config(image: Image) -> dict[str, object]:
    return {
        **_platform(image),
        "created": image.created,
        "config": {**image.config, "Labels": dict(image.labels)},
        "rootfs": {"type": "layers", "diff_ids": [each.diff_id for each in image.layers]},
        "history": [
            {"created": image.created, "created_by": f"tools.build_image: {each.name}"}
            for each in image.layers
        ],
    }


def _manifest(image: Image, config: bytes) -> dict[str, object]:
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": _described(CONFIG_TYPE, config),
        "layers": [_described(LAYER_TYPE, each.blob) for each in image.layers],
        "annotations": dict(image.labels),
    }


def _names(image: Image) -> dict[str, str]:
    name = full_name(image.reference)
    tag = name.rpartition(":")[2]
    return {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}


def _docker(image: Image, config: bytes) -> dict[str, object]:
    return {
        "Config": f"blobs/sha256/{_hex(config)}",
        "RepoTags": [image.reference],
        "Layers": [f"blobs/sha256/{_hex(each.blob)}" for each in image.layers],
    }


def _described(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest(content), "size": len(content)}


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()
