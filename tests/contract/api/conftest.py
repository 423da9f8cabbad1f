"""One suite, two servers: every case here runs on the embedded API server and on the real one."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.http import Api, Namespace

BINARIES = "PILEUS_CONTROL_PLANE"
REAL = pytest.param(
    "real",
    marks=[
        pytest.mark.real_cluster,
        pytest.mark.xdist_group("api-real"),
        pytest.mark.skipif(not os.environ.get(BINARIES), reason=f"{BINARIES} is not set"),
    ],
)
EMBEDDED = pytest.param("embedded", marks=pytest.mark.xdist_group("api-embedded"))


SERVERS = [EMBEDDED, REAL] if find_spec("pileus_lab.cli.apiserver") else [REAL]


@pytest.fixture(scope="session", params=SERVERS)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp(f"api-{request.param}")
    if request.param == "real":
        with ControlPlane(Path(os.environ[BINARIES]), folder) as cluster:
            yield Api.of_kubeconfig(cluster.admin)
    else:
        yield from embedded(folder)


def embedded(folder: Path) -> Iterator[Api]:
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "pileus", "apiserver", "--port=0"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*command, f"--kubeconfig-out={kubeconfig}"], stdout=log, stderr=log
        )
    try:
        yield Api.of_kubeconfig(kubeconfig, wait_for=server)
    finally:
        server.terminate()
        server.wait(20)


@pytest.fixture
def namespace(api: Api) -> Iterator[Namespace]:
    """A namespace of the test's own."""
    name = f"case-{uuid.uuid4().hex[:10]}"
    made = api.post("/api/v1/namespaces", {"metadata": {"name": name}})
    assert made.status == 201, made
    yield Namespace(api, name)
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def fresh() -> str:
    """A name that nobody else uses, for objects without a namespace."""
    return f"case-{uuid.uuid4().hex[:10]}"
