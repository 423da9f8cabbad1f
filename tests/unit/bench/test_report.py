"""The summary, the page, and the file of results."""

from tools.bench.plots import page
from tools.bench.report import HEAD, figures, load, markdown, save, summary, verdicts
from tools.bench.results import Failed, Results, Sample


def results() -> Results:
    return Results(
        about={"date": "2026-01-01 00:00 UTC", "machine": "2 cores"},
        samples=[
            Sample("nodes", "1,000 nodes", "go", 0, {"wall": 7.0, "cpu": 3.0, "calls": 1000}),
            Sample("nodes", "1,000 nodes", "pileus", 0, {"wall": 6.0, "cpu": 4.5, "calls": 3}),
            Sample("routes", "1,000 routes", "go", 0, {"wall": 4.0, "cpu": 1.0}),
            Sample("routes", "1,000 routes", "pileus", 0, {"wall": 12.0, "cpu": 0.5}),
        ],
        failed=[
            Failed("outage", "go", 0, "TimeoutError"),
            Failed("routes", "go", 1, "go-1 ended with exit code 1", ("E1 leader election lost",)),
        ],
        differences={"nodes": [], "routes": ["1 x node.spec.a: only Go has it, as 1"]},
        left_out=["nodes, repeat 2: no time left"],
    )


def lines_between(text: list[str], first: str, last: str) -> list[str]:
    return text[text.index(first) + 1 : text.index(last)]


def test_what_is_worse_than_go_comes_first_the_worst_at_the_top():
    text = list(summary(results()))
    head = next(each for each in text if each.startswith("Worse than Go"))
    worse = [each for each in lines_between(text, head, "Goals") if "x (" in each]
    assert [each.split("  ")[1] for each in worse] == ["1,000 routes, time", "1,000 nodes, CPU"]
    assert "3.00x (1 run)" in worse[0]
    assert "12 / 4 s" in worse[0]
    assert text.index(head) < text.index("Goals") < text.index("Equal to Go or better")


def test_failed_runs_and_what_was_left_out_are_reported():
    text = list(summary(results()))
    assert "  outage, Go tuned, repeat 1: TimeoutError" in text
    failed = text.index("  routes, Go tuned, repeat 2: go-1 ended with exit code 1")
    assert text[failed + 1] == "    E1 leader election lost"
    assert "  nodes, repeat 2: no time left" in text
    assert "End state of nodes: equal, object by object" in text
    assert "  1 x node.spec.a: only Go has it, as 1" in text


def test_each_goal_has_a_verdict_and_missed_ones_come_first():
    found = verdicts(results())
    assert found[0].state == "missed"
    states = [each.state for each in found]
    assert states == sorted(states, key=["missed", "met", "not measured"].index)
    text = "\n".join(summary(results()))
    assert all(each.goal in text for each in found if each.state != "not measured")
    assert "more goals that this run does not measure" in text


def test_without_runs_the_summary_says_that_nothing_was_compared():
    assert "  not compared" in list(summary(Results()))


def test_results_are_the_same_after_saving(tmp_path):
    save(results(), tmp_path / "results.json")
    assert load(tmp_path / "results.json") == results()


def test_the_page_has_plots_and_the_summary():
    text = page(results())
    assert text.count('class="bar"') >= 6
    assert '<span style="left:100.00%">7 s</span>' in text, "the longest of its group"
    assert '<b style="width:max(1px,85.71%);background:#2563eb"></b>' in text
    assert "3.00x (1 run)" in text
    assert "2 cores" in text


def test_terms_are_explained_before_results_and_phones_can_show_the_page():
    for text in (page(results()), markdown(results(), has_picture=True)):
        assert text.index("Bare limit") < text.index("Worse than Go") < text.index("Goals")
    shown = page(results())
    assert 'name="viewport"' in shown
    assert shown.count("<table>") == shown.count('<div class="wide"><table>')
    assert shown.count("<svg width=") == shown.count('<svg width="350"')


def test_the_page_of_the_report_shows_the_picture_only_if_there_is_one():
    text = markdown(results(), has_picture=True)
    assert text.startswith(HEAD)
    assert "(report.png)" in text
    assert "Worse than Go" in text
    assert "(report.png)" not in markdown(results(), has_picture=False)


def test_figures_of_one_manager_have_their_spread():
    one = Results(
        samples=[
            Sample("nodes", "1,000 nodes", "pileus", n, {"wall": wall, "calls": 3})
            for n, wall in enumerate((6.0, 7.5, 6.5))
        ]
    )
    text = [" ".join(line.split()) for line in figures(one)]
    assert text[:3] == ["1,000 nodes, Pileus", "wall 6.50 s 6 to 7.50", "calls 3 3 to 3"]
