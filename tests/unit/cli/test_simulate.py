"""`pileus simulate`: what it prints, what it refuses, and how it ends."""

import io
import os
import signal
from pathlib import Path

import pytest

from pileus.cli.main import dispatch
from pileus.cli.terminal import Terminal
from pileus_lab.simulation import campaign
from pileus_lab.simulation.campaign import Report
from pileus_lab.simulation.scenario import SCENARIOS
from tests.simulation.defects import DEFECTS
from tests.simulation.planting import planted

NETWORK = "pileus_provider_network.simulated:SimulatedNetwork"
NO_CLOUDS = "tests.unit.simulation.clouds.test_local"
STEALING = next(one for one in DEFECTS if one.name == "a lease is taken though its holder lives")


def call(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = dispatch(("simulate", *arguments), Terminal(out, err, {}))
    return code, out.getvalue(), err.getvalue()


def test_the_summary_counts_seeds_deeds_and_faults():
    code, out, err = call("--seeds", "3", "--first-seed", "2")

    assert (code, err) == (0, "")
    assert out.startswith("3 seeds, 0 failed\n")
    assert "seeds per minute and core" in out
    assert "deeds:" in out
    assert "faults of api calls" in out
    assert "slowest seeds:" in out


def test_ctrl_c_ends_it_in_good_order_and_tells_what_was_played(monkeypatch: pytest.MonkeyPatch):
    played, before = campaign.played, signal.getsignal(signal.SIGINT)

    def interrupted(scenario: str, cloud: str, seed: int) -> Report:
        if seed == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return played(scenario, cloud, seed)

    monkeypatch.setattr(campaign, "played", interrupted)
    code, out, err = call("--seeds", "9", "--scenario", "calm")

    assert (code, err) == (130, "")
    assert out.startswith("stopped after 2 of 9 seeds, 0 failed\n")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--scenario", "mixd"], "did you mean mixed?"),
        (["--first-seed", "x"], "--first-seed"),
        (["--first-seed", "-1"], "--first-seed must be 0 or more"),
        (["--seeds", "99999999999999999999"], "--seeds must be at most"),
        (["--seeds", "0"], "at least 1"),
        (["--jobs", "0"], "at least 1"),
        (["--only", "1,b", "--seeds", "1"], 'not "1,b"'),
        (["--only", "1"], "--only needs a single seed"),
        (["--only", "999", "--seeds", "1"], "--only 999: seed 1 has items 1 to "),
        (["--sed", "1"], "unknown flag"),
        (["--cloud", "acme"], "MODULE:NAME"),
        (["--cloud", NETWORK, "--scenario", "volumes"], "SimulatedNetwork has no volumes"),
        (["--cloud", NETWORK, "--scenario", "volume-nodes"], "SimulatedNetwork has no volumes"),
        (["--cloud", f"{NO_CLOUDS}:SimulatedLocl"], 'did you mean "SimulatedLocal"?'),
        (["--cloud", f"{NO_CLOUDS}:NOW"], "is a float; use a class"),
        (["--compare", "/no/such/file"], "cannot read the trace /no/such/file"),
        (["--seeds", "1", "--trace", "/no/such/folder/t"], "cannot write the trace"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(arguments: list[str], told: str):
    code, _, err = call(*arguments)

    assert code == 1
    assert told in err


def test_a_trace_can_be_compared_and_one_of_another_version_is_refused(tmp_path: Path):
    trace = tmp_path / "trace"

    assert call("--seeds", "1", "--scenario", "calm", "--trace", str(trace))[0] == 0
    assert call("--compare", str(trace))[:2] == (0, "the same\n")

    trace.write_text(trace.read_text().replace(" 200\n", " 500\n", 1))
    code, out, _ = call("--compare", str(trace))
    assert (code, out.startswith(f"differs from {trace} at line ")) == (1, True)

    trace.write_text(trace.read_text().replace("pileus 0", "pileus 99", 1))
    assert "written by pileus 99" in call("--compare", str(trace))[2]


def test_what_is_no_text_is_refused_as_a_trace(tmp_path: Path):
    trace = tmp_path / "trace"
    trace.write_bytes(b"\xd9\xff")

    code, _, err = call("--compare", str(trace))

    assert code == 1
    assert "it is not a trace" in err


def test_another_cloud_is_named_in_what_repeats_a_seed(tmp_path: Path):
    trace, cloud = tmp_path / "trace", "tests.unit.simulation.clouds.faulty:Unsound"

    code, out, _ = call("--seeds", "1", "--cloud", cloud, "--trace", str(trace))

    assert code == 1
    assert (
        f"repeat: pileus simulate --first-seed 1 --seeds 1 --scenario mixed --cloud {cloud}" in out
    )
    assert call("--compare", str(trace))[:2] == (0, "the same\n")


def test_a_cloud_whose_provider_is_of_no_use_is_refused():
    code, _, err = call("--seeds", "1", "--cloud", "tests.unit.simulation.clouds.faulty:HalfMade")

    assert code == 1
    assert "lacks the method" in err


def test_a_failing_seed_prints_the_command_that_repeats_it_and_a_smaller_schedule():
    with planted(STEALING):
        code, out, _ = call("--seeds", "1", "--scenario", "leaders", "--shrink")
        again = out.rpartition("repeat: pileus simulate ")[2].split()
        repeated = call(*again) if again[-2] == "--only" else None

    assert code == 1
    assert "seed 1 failed: only_the_leader_writes" in out
    assert "repeat: pileus simulate --first-seed 1 --seeds 1 --scenario leaders\n" in out
    assert "seed 1, reduced: only_the_leader_writes" in out
    assert repeated is None or repeated[0] == 1


def test_the_help_says_what_happens_in_each_scenario():
    code, out, _ = call("--help")

    assert code == 0
    told = " ".join(out.split())
    for one in SCENARIOS.values():
        assert f" {one.name} {one.text} " in f"{told} "
