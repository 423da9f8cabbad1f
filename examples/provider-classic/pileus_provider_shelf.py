"""A whole provider in the classic shape: the Go framework's interface over a file of machines.

The methods are plain: each may block (here, on reading the file anew), and runs in a thread.
"""

from pathlib import Path
from typing import Any, TextIO

import yaml

from pileus.classic.adapter import Adapted
from pileus.classic.errors import InstanceNotFound
from pileus.classic.interface import ClientBuilder, InstanceMetadata
from pileus.classic.stop import Stop
from pileus.kube.model.core_v1 import Node, NodeAddress

NAME = "shelf"
Machine = dict[str, Any]


class Shelf:
    """The provider; None is what it does not support."""

    def __init__(self, inventory: Path) -> None:
        self._instances = ShelfInstances(inventory)

    def initialize(self, client_builder: ClientBuilder, stop: Stop) -> None:
        """Nothing to start; a provider with controllers of its own would use `stop.background`."""

    def instances_v2(self) -> "ShelfInstances":
        return self._instances

    def instances(self) -> None:
        return None

    def load_balancer(self) -> None:
        return None

    def zones(self) -> None:
        return None

    def clusters(self) -> None:
        return None

    def routes(self) -> None:
        return None

    def provider_name(self) -> str:
        return NAME

    def has_cluster_id(self) -> bool:
        return True


class ShelfInstances:
    def __init__(self, inventory: Path) -> None:
        self._inventory = inventory

    def instance_exists(self, node: Node) -> bool:
        return self._find(node) is not None

    def instance_shutdown(self, node: Node) -> bool:
        return self._get(node).get("state") == "stopped"

    def instance_metadata(self, node: Node) -> InstanceMetadata:
        machine = self._get(node)
        return InstanceMetadata(
            provider_id=f"{NAME}://{machine['id']}",
            instance_type=machine.get("type", ""),
            zone=machine.get("zone", ""),
            region=machine["region"],
            node_addresses=[
                NodeAddress(type="InternalIP", address=address)
                for address in machine.get("addresses", [])
            ],
            additional_labels=machine.get("labels", {}),
        )

    def _get(self, node: Node) -> Machine:
        machine = self._find(node)
        if machine is None:
            raise InstanceNotFound
        return machine

    def _find(self, node: Node) -> Machine | None:
        """By provider ID where the node has one, else by name."""
        known = node.spec.provider_id if node.spec else None
        content = yaml.safe_load(self._inventory.read_text(encoding="utf-8"))
        for machine in content["machines"]:
            machine.setdefault("region", content.get("region", ""))
            if known == f"{NAME}://{machine['id']}":
                return machine
            if not known and machine["name"] == node.metadata.name:
                return machine
        return None


def new_shelf(config: TextIO | None) -> Shelf:
    """The factory, as Go's: from the stream of `--cloud-config`."""
    if config is None:
        raise ValueError("the shelf provider needs a file: set --cloud-config")
    return Shelf(Path(yaml.safe_load(config)["inventory"]))


connect = Adapted(new_shelf)
