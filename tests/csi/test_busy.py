"""One operation on a volume at a time: a second one is refused, whatever it is."""

from collections.abc import Callable
from typing import Any

import pytest

from pileus.csi.controller import Controller
from pileus.csi.node import Node, NodeFacts
from pileus.csi.spec import csi_pb2 as csi
from pileus.volumes.busy import Busy, InProgress
from pileus.volumes.operations import Operations
from tests.contract.storage import StorageHarness
from tests.csi.stage import mounted, sized

VOLUME = "vol-0123456789ab"
FIELDS: dict[str, Any] = {
    "volume_id": VOLUME,
    "volume_capability": mounted(),
    "staging_target_path": "/none/staging",
    "target_path": "/none/target",
    "volume_path": "/none/target",
    "node_id": "i-1",
    "capacity_range": sized(1 << 30),
}


async def facts() -> NodeFacts:
    return NodeFacts(id="i-1", topology={})


def asked(request: Callable[..., Any]) -> Any:
    known = request.DESCRIPTOR.fields_by_name  # type: ignore[attr-defined]
    return request(**{key: value for key, value in FIELDS.items() if key in known})


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("node_stage_volume", csi.NodeStageVolumeRequest),
        ("node_unstage_volume", csi.NodeUnstageVolumeRequest),
        ("node_publish_volume", csi.NodePublishVolumeRequest),
        ("node_unpublish_volume", csi.NodeUnpublishVolumeRequest),
        ("node_expand_volume", csi.NodeExpandVolumeRequest),
    ],
)
async def test_a_volume_is_reserved_for_each_operation_of_a_node(
    method: str, request_type: Callable[..., Any]
) -> None:
    node = Node(facts)
    with node.busy.only(VOLUME), pytest.raises(Busy, match="is already in progress"):
        await getattr(node, method)(asked(request_type))


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("delete_volume", csi.DeleteVolumeRequest),
        ("controller_publish_volume", csi.ControllerPublishVolumeRequest),
        ("controller_unpublish_volume", csi.ControllerUnpublishVolumeRequest),
        ("controller_expand_volume", csi.ControllerExpandVolumeRequest),
    ],
)
async def test_a_volume_is_reserved_for_each_operation_in_the_cloud(
    method: str, request_type: Callable[..., Any]
) -> None:
    async with StorageHarness().connect() as volumes:
        controller = Controller(Operations(volumes, "c1"), InProgress())
        with controller.busy.only(VOLUME), pytest.raises(Busy, match="is already in progress"):
            await getattr(controller, method)(asked(request_type))
