"""The kinds of snapshots in the embedded API server, as if their definitions were installed.

It serves no CustomResourceDefinitions: objects are put into its store as they are.
"""

from typing import Any

from pileus_lab.apiserver.api import Api
from pileus_lab.apiserver.resource import Resource
from pileus_lab.apiserver.resources.catalog import ALL, Catalog
from pileus_lab.apiserver.store import Key

GROUP = "snapshot.storage.k8s.io"
SNAPSHOTS = Resource(
    group=GROUP, kind="VolumeSnapshot", plural="volumesnapshots", schema="core.ConfigMap"
)
CONTENTS = Resource(
    group=GROUP,
    kind="VolumeSnapshotContent",
    plural="volumesnapshotcontents",
    schema="core.ConfigMap",
    namespaced=False,
)


def serve_snapshots(api: Api) -> None:
    api.state.catalog = Catalog((*ALL, SNAPSHOTS, CONTENTS))


def put(api: Api, resource: Resource, name: str, **fields: Any) -> None:
    namespace = "default" if resource.namespaced else ""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    metadata |= fields.pop("metadata", {})
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    value: dict[str, object] = {**kind, "metadata": metadata, **fields}
    api.state.store.write(api.state.shelf(resource), Key(namespace, name), value)


def put_snapshot(
    api: Api,
    handle: str,
    driver: str,
    *,
    ready: bool = True,
    content: dict[str, Any] | None = None,
    **metadata: Any,
) -> None:
    """The VolumeSnapshot `copy` and its content, as external-snapshotter leaves them."""
    status = {"readyToUse": ready, "boundVolumeSnapshotContentName": "content"}
    put(api, SNAPSHOTS, "copy", status=status, metadata=metadata)
    spec = {
        "driver": driver,
        "volumeSnapshotRef": {"name": "copy", "namespace": "default", "uid": "uid-copy"},
        **(content or {}),
    }
    state = {"snapshotHandle": handle, "readyToUse": ready}
    put(api, CONTENTS, "content", spec=spec, status=state)
