"""Which runs are made in which order, and what is refused."""

from collections.abc import Sequence

import pytest
from tools.bench.__main__ import main, reason
from tools.bench.bed import Bed, Outcome
from tools.bench.cluster_api import parse_requests
from tools.bench.goals import GROWTH
from tools.bench.plan import Round, fitting, planned, seconds_of
from tools.bench.preflight import Machine, problems
from tools.bench.processes import Process, ProcessEnded
from tools.bench.scenarios import QUICK_SCENARIOS, SCENARIOS, Scenario
from tools.bench.seeds import Seed


async def nothing(_: Bed) -> Outcome:
    return Outcome({})


def scenario(name: str, *, repeats: int = 1, share: float = 1.0) -> Scenario:
    sides = (("go", 10.0), ("pileus", 10.0))
    return Scenario(name, name, Seed(1), nothing, sides, repeats=repeats, repeat_share=share)


def names(rounds: Sequence[Round]) -> list[str]:
    return [f"{one.scenario.name}/{one.side}/{one.repeat}" for each in rounds for one in each]


def test_all_scenarios_once_then_repeats_with_the_sides_in_turn():
    first, more = planned([scenario("a", repeats=2), scenario("b")])
    assert names(first) == ["a/go/0", "a/pileus/0", "b/go/0", "b/pileus/0"]
    assert names(more) == ["a/pileus/1", "a/go/1"]


def test_one_side_and_a_number_of_repeats():
    first, more = planned([scenario("a")], only=("pileus",), repeats=3)
    assert names(first) == ["a/pileus/0", "a/pileus/1", "a/pileus/2"]
    assert more == []


def test_a_round_that_does_not_fit_leaves_room_for_a_shorter_one():
    _, more = planned([scenario("a", repeats=2), scenario("b", repeats=2, share=0.5)])
    assert names(fitting(more, 15)) == ["b/pileus/1", "b/go/1"]
    assert len(fitting(more, 30)) == 2


def test_a_repeat_is_expected_to_take_what_the_first_run_took():
    _, more = planned([scenario("a", repeats=2, share=0.5)])
    pileus, go = more[0]
    assert pileus.expected({("a", "pileus"): 30.0}, slowness=9.0) == 15.0
    assert go.expected({("a", "pileus"): 30.0}, slowness=2.0) == 10.0


@pytest.mark.parametrize(("scenarios", "minutes"), [(SCENARIOS, 20), (QUICK_SCENARIOS, 3)])
def test_one_run_of_each_scenario_fits_into_the_time_of_the_benchmark(scenarios, minutes: float):
    first, _ = planned(scenarios)
    assert seconds_of(first) <= minutes * 60


def test_both_managers_are_measured_at_each_size_of_the_growth():
    first, _ = planned(SCENARIOS)
    for size in GROWTH:
        name = "nodes" if size == 1000 else f"nodes-{size}"
        assert {f"{name}/go/0", f"{name}/pileus/0"} <= set(names(first))


def test_a_quiet_machine_with_memory_has_no_problems():
    assert problems(Machine(2, 8, 6, 0.1)) == []


def test_too_little_memory_and_a_busy_machine_are_problems():
    found = problems(Machine(2, 8, 1.5, 0.9))
    assert "1.5 GiB of memory are available, 4 are needed" in found[0]
    assert "other work uses 90% of its cores" in found[1]


def test_an_unknown_scenario_or_manager_is_refused_with_the_right_name(capsys):
    assert main(["nods"]) == 2
    assert 'unknown scenario "nods" (did you mean "nodes"?)' in capsys.readouterr().err
    assert main(["nodes", "--onli=pileus"]) == 2
    assert 'unknown flag "--onli" (did you mean "--only"?)' in capsys.readouterr().err
    assert main(["nodes", "--only", "pilus"]) == 2
    assert 'unknown manager "pilus" (did you mean "pileus"?)' in capsys.readouterr().err


def test_what_would_fail_at_the_end_of_a_run_is_refused_before_it(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["nodes", "--report", str(tmp_path / "file" / "report")]) == 2
    assert "--report: cannot create folder" in capsys.readouterr().err
    assert main(["nodes", "--repeats", "-1"]) == 2
    assert "--repeats cannot be -1" in capsys.readouterr().err


def test_a_file_without_results_is_refused(tmp_path, capsys):
    (tmp_path / "other.json").write_text("{}")
    assert main(["--show", str(tmp_path / "other.json")]) == 2
    assert "has no results of a benchmark" in capsys.readouterr().err
    assert main(["--show", str(tmp_path / "none.json")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_manager_that_ends_is_a_failed_run_with_the_end_of_its_log(tmp_path):
    script = "for n in $(seq 50); do echo line $n; done; exit 3"
    process = Process(["sh", "-c", script], tmp_path / "go-1.log")
    process.popen.wait()

    with pytest.raises(ProcessEnded) as ended:
        process.check()

    why, log = reason(ExceptionGroup("tasks", [ended.value]))
    assert why == "go-1 ended with exit code 3"
    assert log == tuple(f"line {number}" for number in range(43, 51))


METRICS = """
# HELP apiserver_request_total Counter
apiserver_request_total{code="200",resource="nodes",scope="resource",verb="PATCH"} 5
apiserver_request_total{code="409",resource="nodes",scope="resource",verb="PATCH"} 2
apiserver_request_total{code="201",resource="events",scope="resource",verb="POST"} 3
apiserver_request_total{code="200",resource="leases",scope="resource",verb="PUT"} 9
apiserver_request_total{code="200",resource="nodes",scope="cluster",verb="LIST"} 4
apiserver_watch_events_sizes_sum{group="",resource="nodes",version="v1"} 1024
"""


def test_writes_and_events_are_counted_without_leases_reads_and_refused_requests():
    used = parse_requests(METRICS)
    assert (used.writes(), used.events(), used.watch_bytes) == (5, 3, 1024)
    assert used.minus(used).writes() == 0
