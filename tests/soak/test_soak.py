"""A short soak, on a real control plane, with the real program and a real cloud of its own."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.soak.soak import Size, soak
from tests.soak.table import table

BINARIES = "PILEUS_CONTROL_PLANE"
SEED = 7
"""Of what happens; `make soak` takes others."""
SHORT = Size(
    nodes=24,
    services=10,
    restless=15,
    calm=8,
    per_second=6,
    restart_every=5,
    patience=150,
    slack=24,
    leaves_orphans=False,
)


@pytest.mark.real_cluster
@pytest.mark.real_time
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not os.environ.get(BINARIES), reason=f"no real control plane: {BINARIES} is not set"
)
def test_after_churn_and_restarts_all_is_as_it_should_be(tmp_path: Path):
    def tell(line: str) -> None:
        sys.stdout.write(f"{line}\n")

    with ControlPlane(Path(os.environ[BINARIES]), tmp_path) as cluster:
        outcome = asyncio.run(soak(cluster, tmp_path, SHORT, SEED, tell))

    tell(table(outcome))
    assert outcome.orphans == 0
    assert outcome.visited > 0
    assert outcome.churn.total() > 50
    assert sum(outcome.ended.values()) >= 2
