"""A provider in the classic shape whose load balancers are a file, and its calls another."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from pileus.classic.adapter import Adapted
from pileus.kube.model.core_v1 import LoadBalancerIngress, LoadBalancerStatus, Node, Service

STATUS = LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="192.0.2.7"),))


class PortedLab:
    def __init__(self, config: IO[str] | None) -> None:
        self._folder = Path((config.read() if config else "").strip())

    def initialize(self, client_builder: object, stop: object) -> None: ...
    def instances(self) -> None: ...
    def instances_v2(self) -> None: ...
    def zones(self) -> None: ...
    def clusters(self) -> None: ...
    def routes(self) -> None: ...

    def load_balancer(self) -> "PortedLab":
        return self

    def provider_name(self) -> str:
        return "lab-ported"

    def has_cluster_id(self) -> bool:
        return True

    def get_load_balancer(self, cluster_name: str, service: Service) -> LoadBalancerStatus | None:
        self._called("get", service)
        return STATUS if self._members(service) is not None else None

    def get_load_balancer_name(self, cluster_name: str, service: Service) -> str:
        return service.metadata.uid

    def ensure_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> LoadBalancerStatus:
        self._called("ensure", service)
        self._file(service).write_text(json.dumps([node.metadata.name for node in nodes]))
        return STATUS

    def update_load_balancer(
        self, cluster_name: str, service: Service, nodes: Sequence[Node]
    ) -> None:
        self._called("update", service)
        self._file(service).write_text(json.dumps([node.metadata.name for node in nodes]))

    def ensure_load_balancer_deleted(self, cluster_name: str, service: Service) -> None:
        self._called("delete", service)
        self._file(service).unlink(missing_ok=True)

    def _file(self, service: Service) -> Path:
        return self._folder / f"balancer-{service.metadata.name}.json"

    def _members(self, service: Service) -> list[str] | None:
        file = self._file(service)
        return json.loads(file.read_text()) if file.exists() else None

    def _called(self, method: str, service: Service) -> None:
        with (self._folder / "balancer-calls").open("a") as calls:
            calls.write(f"{method} {service.metadata.name}\n")


connect = Adapted(PortedLab)
