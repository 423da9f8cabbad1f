"""What webhooks and certificates are tested with: volumes of a cloud, and a tiny API server."""

import json
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pileus.admission.volumes import Place, VolumeLookup
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.volume import Volume, VolumeId, VolumeNames, VolumeState
from pileus.kube.transport import Reply, Request

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
HERE = {ZONE: "a", REGION: "north"}


def volume(name: str, topology: Mapping[str, str] = HERE, **fields: Any) -> Volume:
    made: dict[str, Any] = {"size_gib": 10, "state": VolumeState.AVAILABLE, **fields}
    return Volume(id=VolumeId(name), owner=None, topology=topology, **made)


@dataclass
class FewVolumes:
    """The part of `Volumes` that webhooks use."""

    kept: tuple[Volume, ...] = ()
    error: CloudError | None = None
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list[Any])

    async def list_volumes(
        self, cluster: str, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, Volume]:
        self.asked.append((cluster, tuple(ids or ())))
        if self.error is not None:
            raise self.error
        return {each.id: each for each in self.kept if ids is None or each.id in ids}


def cloud(name: str, volumes: FewVolumes, names: VolumeNames | None = None) -> Cloud:
    return Cloud(name=name, volumes=volumes, volume_names=names or VolumeNames())  # type: ignore[arg-type]


def lookup(*clouds: Cloud) -> VolumeLookup:
    places = tuple(Place(each.name, lambda each=each: each, str) for each in clouds)

    async def cluster_id() -> str:
        return "cluster-uid"

    return VolumeLookup(lambda: places, cluster_id)


@dataclass
class Stored:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    async def read(self) -> bytes:
        return self.body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.body


@dataclass
class Objects:
    """An API server that stores objects by path, with versions and merge patches."""

    kept: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])
    writes: list[str] = field(default_factory=list[str])
    version: int = 0

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        yield self._answer(request.method, request.path, json.loads(request.body or b"null"))

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        metadata = {**body.get("metadata", {}), "resourceVersion": str(self.version)}
        self.kept[path] = {**body, "metadata": metadata}
        return self.kept[path]

    def _answer(self, method: str, path: str, body: Any) -> Stored:
        if method != "GET":
            self.writes.append(f"{method} {path}")
        if method == "POST":
            return _answered(201, self.put(f"{path}/{body['metadata']['name']}", body))
        if path not in self.kept:
            return _failed(404, "NotFound")
        if method == "PATCH":
            old = self.kept[path]
            wanted = body.get("metadata", {}).pop("resourceVersion", None)
            if wanted not in {None, old["metadata"]["resourceVersion"]}:
                return _failed(409, "Conflict")
            return _answered(200, self.put(path, _merged(old, body)))
        return _answered(200, self.kept[path])


def _answered(status: int, body: object) -> Stored:
    return Stored(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


def _failed(code: int, reason: str) -> Stored:
    status = {"kind": "Status", "status": "Failure", "reason": reason, "code": code}
    return _answered(code, status)


def _merged(old: Any, new: Any) -> Any:
    """As a strategic merge patch: maps by key, lists of maps by their name."""
    if isinstance(old, list) and isinstance(new, list):
        named = {each["name"]: each for each in new}
        return [_merged(each, named.get(each["name"], {})) for each in old]
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    both = {key: _merged(old[key], new[key]) if key in old else new[key] for key in new}
    return {key: value for key, value in {**old, **both}.items() if value is not None}


def configuration(kind: str, *urls: str, ca: bytes = b"") -> dict[str, Any]:
    """A webhook configuration, with one webhook of ours per URL and one of another project."""
    hooks = [
        {"name": f"hook-{number}.webhooks.pileus.dev", "clientConfig": {"url": url}}
        for number, url in enumerate(urls)
    ]
    theirs = {"name": "theirs.example.org", "clientConfig": {"url": "https://theirs.example.org"}}
    for hook in hooks if ca else ():
        hook["clientConfig"]["caBundle"] = b64encode(ca).decode()  # type: ignore[index]
    return {"kind": kind, "metadata": {"name": "x"}, "webhooks": [*hooks, theirs]}
