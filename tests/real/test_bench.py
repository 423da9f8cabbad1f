"""The benchmark works: a run of it on a real control plane with its simulated cloud."""

import os
from pathlib import Path

import pytest
from tools.bench.bed import Pace, Run
from tools.bench.objects import UNINITIALIZED
from tools.bench.processes import CLOUD, sides
from tools.bench.scenarios import nodes
from tools.bench.seeds import Seed

from tests.real.conftest import BINARIES

COUNT = 5


def test_a_run_initializes_all_nodes_and_counts_what_it_took():
    if CLOUD.build():
        pytest.skip("no Go to build the simulated cloud of the benchmark")
    work = nodes(COUNT, "nodes", compare=True)
    run = Run(sides()["pileus"], Seed(COUNT), Pace(latency_ms=1), work, limit=120)
    outcome = run.outcome(Path(os.environ[BINARIES]), lambda _: None)
    values = outcome.parts["nodes"]
    assert values["writes"] == 2 * COUNT
    assert values["events"] >= COUNT
    assert values["calls instances.find"] >= 1
    assert values["refused"] == 0
    assert min(values[each] for each in ("wall", "cpu", "peak", "api_cpu", "watch_mib")) > 0
    found = [path for path in outcome.state if path.endswith(".spec.providerID")]
    assert len(found) == COUNT
    assert not [path for path in outcome.state if UNINITIALIZED in path]
