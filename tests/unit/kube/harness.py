"""A client whose API server is a script, for the tests beside this file."""

from collections.abc import Mapping
from typing import cast

import msgspec
from prometheus_client import CollectorRegistry

from pileus.fence import Fence
from pileus.kube.client import Client
from pileus.kube.transport import Request
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import Scripted, ScriptedTransport, in_order


def node(name: str, version: str = "1", **metadata: object) -> dict[str, object]:
    return {"metadata": {"name": name, "resourceVersion": version, **metadata}}


ODD = {"metadata": {"name": "odd", "uid": "u-1"}, "spec": {"unschedulable": "perhaps"}}


class Kube:
    """A client whose server is a script."""

    def __init__(self, *replies: Scripted, fence: Fence | None = None) -> None:
        self.transport = ScriptedTransport(in_order(*replies))
        self.metrics = Metrics(CollectorRegistry())
        self.client = Client(
            self.transport, user_agent="test/1", metrics=self.metrics, fence=fence, host="api:6443"
        )

    @property
    def sent(self) -> Request:
        return self.transport.requests[-1]

    @property
    def body(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", msgspec.json.decode(self.sent.body or b"{}"))

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)
