"""Both servers, each with a kubectl of its own, for as long as the module's tests take."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.contract.api.conftest import BINARIES, embedded
from tests.contract.kubectl.session import Session

FILES = Path(__file__).parent / "files"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Session]]:
    """The real server's session and the embedded one's."""
    binaries, folder = Path(os.environ[BINARIES]), tmp_path_factory.mktemp("kubectl")
    (folder / "embedded").mkdir()
    kubectl = binaries / "kubectl"
    with ControlPlane(binaries, folder / "real") as cluster:
        for _ in embedded(folder / "embedded"):
            yield (
                Session(kubectl, cluster.admin, FILES),
                Session(kubectl, folder / "embedded" / "kubeconfig", FILES),
            )
