"""Our instruments beside those of Prometheus' client library, whose text must be the same."""

import math
import re
from typing import Any, cast

import prometheus_client as library
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.utils import floatToGoString

from pileus.server.metrics import open_metrics_text
from pileus.telemetry.instruments import Family, MetricRegistry, declarations, number

BOUNDS = (0.005, 1, 2.5, 4194304)
TEXT = 'a "text"\nof \\ two lines'
LABELS = ("second", "first")

any_number = st.floats(allow_nan=True, allow_infinity=True)
amounts = st.floats(min_value=0, allow_nan=False)
values = st.tuples(st.text(), st.text())


GO_NUMBERS = {
    0.0: "0",
    1.0: "1",
    -1.0: "-1",
    0.005: "0.005",
    2.5: "2.5",
    1e-4: "0.0001",
    1e-5: "1e-05",
    9.999999999999999e-06: "9.999999999999999e-06",
    16384.0: "16384",
    262144.0: "262144",
    999999.5: "999999.5",
    1e6: "1e+06",
    -1e6: "-1e+06",
    1048576.0: "1.048576e+06",
    16777216.0: "1.6777216e+07",
    1234567.25: "1.23456725e+06",
    1e15: "1e+15",
    1e16: "1e+16",
    1.8446744073709552e19: "1.8446744073709552e+19",
    1e100: "1e+100",
    math.inf: "+Inf",
    -math.inf: "-Inf",
}
"""As `strconv.FormatFloat(value, 'g', -1, 64)`, which Go's metrics use."""


@pytest.mark.parametrize(("value", "text"), GO_NUMBERS.items())
def test_numbers_are_formatted_as_go_does(value: float, text: str):
    assert number(value) == text


@given(any_number)
def test_numbers_are_formatted_as_by_the_library_but_for_an_empty_fraction(value: float):
    text = number(value)

    assert math.isnan(value) or float(text) == value
    assert number(abs(value)) == floatToGoString(abs(value)).removesuffix(".0")


@given(st.lists(st.tuples(values, amounts)), st.lists(amounts))
def test_text_is_that_of_the_library(labelled: list[Any], unlabelled: list[float]):
    ours, theirs = MetricRegistry(), library.CollectorRegistry()
    of_library = (
        library.Histogram("a_seconds", TEXT, registry=theirs, buckets=BOUNDS),
        library.Histogram("b_seconds", TEXT, LABELS, registry=theirs, buckets=BOUNDS),
        library.Counter("c_total", TEXT, registry=theirs),
        library.Counter("d_total", TEXT, LABELS, registry=theirs),
        library.Gauge("e", TEXT, registry=theirs),
        library.Gauge("f", TEXT, LABELS, registry=theirs),
    )
    own = (
        ours.histogram("a_seconds", TEXT, BOUNDS),
        ours.histogram("b_seconds", TEXT, BOUNDS, LABELS),
        ours.counter("c_total", TEXT),
        ours.counter("d_total", TEXT, LABELS),
        ours.gauge("e", TEXT),
        ours.gauge("f", TEXT, LABELS),
    )

    for one, of, counter, counters, gauge, gauges in (of_library, own):
        for value in unlabelled:
            one.observe(value)
            counter.inc(value)
            gauge.set(-min(value, 1e5))
            gauge.inc(2)
        for label, value in labelled:
            of.labels(*label).observe(value)
            counters.labels(*label).inc(value)
            gauges.labels(*label).set(value)

    expected = cast("bytes", generate_latest(theirs)).decode().split("\n")
    shown = open_metrics_text(ours).decode().split("\n")
    assert shown == [
        line
        for line in expected
        if not line.partition("{")[0].partition(" ")[0].endswith("_created")
        and not _is_without_samples(line, labelled)
    ]


def _is_without_samples(line: str, labelled: list[Any]) -> bool:
    """Whether the line describes a metric that we do not show, since nothing was measured."""
    return not labelled and re.match(r"# (HELP|TYPE) (b_seconds|d|f) ", line) is not None


def test_a_function_is_called_whenever_the_gauge_is_read():
    registry = MetricRegistry()
    reads = iter((3, 4))
    registry.gauge("keys", "Keys", ("name",)).labels("a").set_function(lambda: next(reads))

    assert registry.value("keys", {"name": "a"}) == 3
    assert registry.value("keys", {"name": "a"}) == 4


def test_instruments_that_are_removed_are_no_longer_shown():
    registry = MetricRegistry()
    ages = registry.gauge("age", "Age", ("of",))
    for name in ("a", "b", "c"):
        ages.labels(name).set(1)

    ages.remove("a")
    ages.remove("absent")

    assert registry.value("age", {"of": "a"}) is None
    assert registry.value("age", {"of": "b"}) == 1
    ages.clear()
    assert [reading.samples for reading in registry.read()] == [()]


def test_equal_labels_are_one_instrument():
    registry = MetricRegistry()
    counts = registry.counter("calls_total", "Calls", ("method", "code"))

    counts.labels("get", "200").inc()
    counts.labels("get", "200").inc(2)

    assert registry.value("calls_total", {"code": "200", "method": "get"}) == 3
    assert registry.value("calls_total", {"code": "500", "method": "get"}) is None


@pytest.mark.parametrize("values", [(), ("a",), ("a", "b", "c")])
def test_labels_need_as_many_values_as_were_declared(values: tuple[str, ...]):
    counts = MetricRegistry().counter("calls_total", "Calls", ("method", "code"))

    with pytest.raises(ValueError, match="calls_total has the labels"):
        counts.labels(*values)


def test_a_counter_does_not_decrease():
    registry = MetricRegistry()
    counter = registry.counter("calls_total", "Calls")

    with pytest.raises(ValueError, match="calls_total: a counter cannot decrease by 1"):
        counter.inc(-1)
    assert registry.value("calls_total") == 0


def test_two_metrics_cannot_have_one_name():
    registry = MetricRegistry()
    registry.counter("calls_total", "Calls")

    with pytest.raises(ValueError, match="two metrics have the name calls_total"):
        registry.gauge("calls_total", "Others")


def test_values_on_a_bound_and_beyond_all_of_them():
    registry = MetricRegistry()
    sizes = registry.histogram("size_bytes", "Size", (1, 10))

    for value in (1, 10, 10.5, math.inf):
        sizes.observe(value)

    counts = [registry.value("size_bytes_bucket", {"le": le}) for le in ("1", "10", "+Inf")]
    assert counts == [1, 2, 4]
    assert registry.value("size_bytes_count") == 4


def test_declarations_name_all_time_series():
    class Holder:
        def __init__(self) -> None:
            registry = MetricRegistry()
            self.calls = registry.counter("calls_total", "Calls", ("code",))
            self.sizes = registry.histogram("size_bytes", "Size", (1,), ("of",))
            self.other = "no metric"

    found = declarations(Holder())

    assert found["calls"] == Family("calls_total", "counter", ("code",), "Calls")
    assert found["calls"].series() == {"calls_total": {"code"}}
    assert found["sizes"].series() == {
        "size_bytes_bucket": {"of", "le"},
        "size_bytes_sum": {"of"},
        "size_bytes_count": {"of"},
    }
    assert set(found) == {"calls", "sizes"}
