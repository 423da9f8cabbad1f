"""The metrics of the driver, and the port that serves them."""

import asyncio
import socket
import urllib.error
import urllib.request
from pathlib import Path
from random import Random

import pytest
from grpclib.const import Status

from pileus.clock import SystemClock
from pileus.csi.address import HttpAddress, parse_address
from pileus.csi.http_endpoint import serving_metrics
from pileus.csi.identity import Identity
from pileus.csi.metrics import FORGOTTEN, CsiMetrics, exposed_registry, go_name
from pileus.csi.run import controller_parts
from pileus.csi.server import Services
from pileus.server.metrics import prometheus_text
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.connect import cloud_of
from tests.csi.stage import CLUSTER, driving, mounted
from tests.csi.test_process import client_of, reached, running

DRIVER = "local.csi.pileus.dev"
OPERATIONS = "csi_plugin_operations_seconds"


def count(registry: MetricRegistry, method: str, code: str) -> float | None:
    labels = {"driver_name": DRIVER, "method_name": method, "grpc_status_code": code}
    return registry.value(f"{OPERATIONS}_count", labels)


@pytest.mark.real_time
async def test_operations_are_counted_by_method_and_code(tmp_path: Path) -> None:
    registry = MetricRegistry()
    measured = CsiMetrics(registry, DRIVER)
    cloud = await cloud_of(LocalCloud(CloudContext(clock=SystemClock(), chance=Random(1))))
    assert cloud.volumes is not None
    parts = {
        "Identity": [Identity(DRIVER, True)],
        "Controller": controller_parts(cloud.volumes, CLUSTER),
    }
    async with driving(tmp_path, Services(parts, observe=measured.observe)) as client:
        made = await client("CreateVolume", name="a", volume_capabilities=[mounted()])
        await client("GetPluginInfo")
        missing = {"volume_id": "none", "node_id": "n", "volume_capability": mounted()}
        await client.fails("ControllerPublishVolume", **missing)
        assert registry.value("pileus_csi_volumes_failing") == 1
        await client.fails("CreateVolume", name="b")
        await client.fails("NodeGetInfo")
        await client("DeleteVolume", volume_id=made.volume.volume_id)

    assert count(registry, "/csi.v1.Controller/CreateVolume", "OK") == 1
    assert count(registry, "/csi.v1.Controller/CreateVolume", "InvalidArgument") == 1
    assert count(registry, "/csi.v1.Controller/ControllerPublishVolume", "NotFound") == 1
    assert count(registry, "/csi.v1.Controller/DeleteVolume", "OK") == 1
    assert count(registry, "/csi.v1.Node/NodeGetInfo", "Unimplemented") == 1
    assert count(registry, "/csi.v1.Identity/GetPluginInfo", "OK") == 1


async def test_a_volume_fails_until_the_same_operation_succeeds_or_is_given_up() -> None:
    registry = MetricRegistry()
    measured = CsiMetrics(registry, DRIVER)

    def failing() -> float | None:
        return registry.value("pileus_csi_volumes_failing")

    measured.observe("Stage", Status.INTERNAL, 0.1, "v1")
    measured.observe("Publish", Status.INTERNAL, 0.1, "v1")
    measured.observe("Stage", Status.UNAVAILABLE, 0.1, "v2")
    measured.observe("Probe", Status.INTERNAL, 0.1, "")
    assert failing() == 2

    measured.observe("Stats", Status.OK, 0.1, "v2")
    assert failing() == 2
    measured.observe("Stage", Status.OK, 0.1, "v2")
    assert failing() == 1

    await asyncio.sleep(FORGOTTEN + 1)
    assert failing() == 0


def test_codes_are_written_as_go_writes_them() -> None:
    assert [go_name(code) for code in Status] == [
        *("OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound"),
        *("AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition"),
        *("Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss"),
        "Unauthenticated",
    ]


def test_metrics_of_controllers_are_not_exposed() -> None:
    metrics = Metrics(MetricRegistry())
    metrics.cloud_calls.labels("local", "volumes", "create", "success").inc()
    metrics.volumes_failing.set(1)

    text = prometheus_text(exposed_registry(metrics.registry)).decode()

    assert 'pileus_cloud_calls_total{capability="volumes"' in text
    assert "kubernetes_build_info" in text
    assert "pileus_volumes_failing" not in text


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", HttpAddress("", 8080)),
        ("localhost:1", HttpAddress("localhost", 1)),
        ("127.0.0.1:65535", HttpAddress("127.0.0.1", 65535)),
        ("[::1]:80", HttpAddress("::1", 80)),
    ],
)
def test_addresses_are_read_as_they_are_written(text: str, address: HttpAddress) -> None:
    assert parse_address(text) == address
    assert str(address) == text


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@pytest.mark.real_time
@pytest.mark.parametrize("host", ["", "localhost"])
async def test_only_the_path_of_the_metrics_is_served(host: str) -> None:
    port, registry = free_port(), MetricRegistry()
    CsiMetrics(registry, DRIVER)
    async with serving_metrics(HttpAddress(host, port), "/csi", registry):
        found = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/csi")
        other = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/metrics")

    assert found[0] == 200
    assert "pileus_csi_volumes_failing 0" in found[1]
    assert other == (404, "not found: metrics are at /csi\n")


@pytest.mark.real_time
async def test_probes_tell_a_driver_that_serves_from_one_that_starts() -> None:
    port, registry, served = free_port(), MetricRegistry(), asyncio.Event()
    address = HttpAddress("127.0.0.1", port)
    async with serving_metrics(address, "/metrics", registry, served.is_set):
        before = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/readyz")
        alive = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/healthz")
        served.set()
        after = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/readyz")

    assert (before[0], alive[0], after[0]) == (503, 200, 200)


@pytest.mark.real_time
async def test_the_process_serves_its_metrics(tmp_path: Path) -> None:
    cloud, path, port = tmp_path / "cloud.sock", tmp_path / "csi.sock", free_port()
    config = tmp_path / "cloud.yaml"
    config.write_text(f"endpoint: {cloud}\nnetwork: none\nvolumeFolder: {tmp_path}/volumes\n")
    flags = ("--cloud-provider=local", f"--cloud-config={config}", "--cluster-id=c1")
    serve = ("--mode=controller", f"--endpoint=unix://{path}", f"--http-endpoint=127.0.0.1:{port}")
    async with running("local", "serve", f"--config={config}"):
        await reached(cloud)
        async with running("csi", *flags, *serve), client_of(path) as client:
            await client("CreateVolume", name="a", volume_capabilities=[mounted()])
            status, text = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/metrics")
            ready = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/readyz")

    assert (status, ready[0]) == (200, 200)
    method = 'method_name="/csi.v1.Controller/CreateVolume"'
    labels = f'driver_name="{DRIVER}",grpc_status_code="OK",{method}'
    assert f"{OPERATIONS}_count{{{labels}}} 1" in text
    assert 'pileus_cloud_calls_total{capability="volumes",method="create"' in text
    assert "pileus_nodes_failing" not in text
