"""A whole provider in the classic shape: the Go framework's interface over two files.

`inventory` lists the machines, and is only read. `state`, if it is configured, is what a router
would get: load balancers and routes. Without it the provider supports neither.

The methods are plain: each may block (here, on reading a file), and runs in a thread of its own,
beside others. Hence the lock around the state.
"""
# ruff: noqa: ARG002 -- the Go framework passes the cluster's name to every method

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

import yaml

from pileus.classic.adapter import Adapted
from pileus.classic.errors import InstanceNotFound, RetryError
from pileus.classic.helpers import (
    default_load_balancer_name,
    health_check_path_port,
    load_balancer_source_ranges,
)
from pileus.classic.interface import ClientBuilder, InstanceMetadata, Route
from pileus.classic.stop import Stop
from pileus.cloud.errors import Misconfigured
from pileus.kube.model.core_v1 import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    Service,
)

NAME = "shelf"
NO_ADDRESS_LEFT = 60.0
"""Seconds until a Service asks again for an address when all are taken."""
Machine = dict[str, Any]
Tree = dict[str, Any]


class Shelf:
    """The provider; None is what it does not support."""

    def __init__(self, inventory: Path, state: "State | None", addresses: Sequence[str]) -> None:
        self._instances = ShelfInstances(inventory)
        self._balancers = ShelfBalancers(state, addresses) if state else None
        self._routes = ShelfRoutes(state) if state else None

    def initialize(self, client_builder: ClientBuilder, stop: Stop) -> None:
        """Nothing to start; a provider with controllers of its own would use `stop.background`."""

    def instances_v2(self) -> "ShelfInstances":
        return self._instances

    def instances(self) -> None:
        return None

    def load_balancer(self) -> "ShelfBalancers | None":
        return self._balancers

    def routes(self) -> "ShelfRoutes | None":
        return self._routes

    def zones(self) -> None:
        return None

    def clusters(self) -> None:
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


class State:
    """A file that one process changes, one thread at a time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = Lock()

    def read(self) -> Tree:
        with self._lock:
            return self._load()

    @contextmanager
    def changing(self) -> Generator[Tree]:
        """The tree, to be changed in place; it is written unless the block raises."""
        with self._lock:
            tree = self._load()
            yield tree
            draft = self._file.with_suffix(".new")
            draft.write_text(yaml.safe_dump(tree), encoding="utf-8")
            draft.replace(self._file)

    def _load(self) -> Tree:
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        return {"balancers": {}, "routes": {}, **(yaml.safe_load(text) or {})}


class ShelfBalancers:
    def __init__(self, state: State, addresses: Sequence[str]) -> None:
        self._state = state
        self._addresses = addresses

    def get_load_balancer_name(self, cluster_name: str, service: Service) -> str:
        return f"{cluster_name}-{default_load_balancer_name(service)}"

    def get_load_balancer(self, cluster_name: str, service: Service) -> LoadBalancerStatus | None:
        name = self.get_load_balancer_name(cluster_name, service)
        found = self._state.read()["balancers"].get(name)
        return None if found is None else _status(found)

    def ensure_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> LoadBalancerStatus:
        name = self.get_load_balancer_name(cluster_name, service)
        with self._state.changing() as tree:
            address = tree["balancers"].get(name, {}).get("address") or self._free(tree)
            tree["balancers"][name] = _balancer(address, service, nodes)
            return _status(tree["balancers"][name])

    def update_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> None:
        name = self.get_load_balancer_name(cluster_name, service)
        with self._state.changing() as tree:
            tree["balancers"][name]["nodes"] = _names(nodes)

    def ensure_load_balancer_deleted(self, cluster_name: str, service: Service) -> None:
        with self._state.changing() as tree:
            tree["balancers"].pop(self.get_load_balancer_name(cluster_name, service), None)

    def _free(self, tree: Tree) -> str:
        taken = {each["address"] for each in tree["balancers"].values()}
        for address in self._addresses:
            if address not in taken:
                return address
        raise RetryError("all addresses of the shelf are taken", NO_ADDRESS_LEFT)


def _balancer(address: str, service: Service, nodes: Sequence[Node]) -> Tree:
    ports = (service.spec and service.spec.ports) or ()
    check = health_check_path_port(service)
    return {
        "address": address,
        "ports": [{"port": each.port, "nodePort": each.node_port} for each in ports],
        "sources": sorted(map(str, load_balancer_source_ranges(service))),
        "check": None if check is None else {"path": check[0], "port": check[1]},
        "nodes": _names(nodes),
    }


def _names(nodes: Sequence[Node]) -> list[str]:
    return sorted(node.metadata.name for node in nodes)


def _status(balancer: Tree) -> LoadBalancerStatus:
    return LoadBalancerStatus(ingress=(LoadBalancerIngress(ip=balancer["address"]),))


class ShelfRoutes:
    def __init__(self, state: State) -> None:
        self._state = state

    def list_routes(self, cluster_name: str) -> list[Route]:
        """All routes of the router, those of other clusters too."""
        return [
            Route(name=found["name"], target_node=found["node"], destination_cidr=destination)
            for destination, found in self._state.read()["routes"].items()
        ]

    def create_route(self, cluster_name: str, name_hint: str, route: Route) -> None:
        with self._state.changing() as tree:
            name = f"{cluster_name}-{name_hint}"
            tree["routes"][route.destination_cidr] = {"name": name, "node": route.target_node}

    def delete_route(self, cluster_name: str, route: Route) -> None:
        with self._state.changing() as tree:
            tree["routes"].pop(route.destination_cidr, None)


def new_shelf(config: TextIO | None) -> Shelf:
    """The factory, as Go's: from the stream of `--cloud-config`."""
    if config is None:
        raise Misconfigured("the shelf provider needs a file: set --cloud-config")
    settings = yaml.safe_load(config)
    state = State(Path(settings["state"])) if "state" in settings else None
    return Shelf(Path(settings["inventory"]), state, settings.get("addresses", []))


connect = Adapted(new_shelf)
