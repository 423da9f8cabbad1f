"""Log lines look like klog's, hold secrets back and cannot be forged."""

import io
import json
import logging
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.telemetry.log import Log
from pileus.telemetry.logs import Verbosity, logging_to
from pileus.telemetry.settings import LogSettings, ModuleLevel

HEADER = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]+:\d+\] ")
LOG = Log("pileus.somewhere")


@dataclass
class Written:
    out: io.StringIO
    err: io.StringIO
    verbosity: Verbosity

    def lines(self) -> list[str]:
        return self.err.getvalue().splitlines()

    def body(self) -> str:
        """What stands after the header of the only entry."""
        text = self.err.getvalue()
        header = HEADER.match(text)
        assert header, text
        return text[header.end() :].removesuffix("\n")


@contextmanager
def logs(settings: LogSettings | None = None) -> Generator[Written]:
    out, err = io.StringIO(), io.StringIO()
    with logging_to(settings or LogSettings(), out, err) as verbosity:
        yield Written(out, err, verbosity)


def test_a_line_has_severity_time_process_file_and_line():
    with logs() as written:
        LOG.info("Initialized node", node="a", seconds=0.25, tries=2, ready=True, zone=None)

    assert re.fullmatch(
        r"I\d{4} \d\d:\d\d:\d\d\.\d{6} [ \d]{7} test_klog\.py:\d+\] "
        r'"Initialized node" node="a" seconds=0\.25 tries=2 ready=true zone=null\n',
        written.err.getvalue(),
    )


def test_each_severity_has_its_letter():
    with logs() as written:
        LOG.info("a")
        LOG.warning("b")
        LOG.error("c", error=ValueError("why"))
        LOG.fatal("d", error=ValueError("why"))

    assert [line[0] for line in written.lines()] == ["I", "W", "E", "F"]
    assert written.lines()[2].endswith('] "c" err="why"')


def test_an_error_without_text_is_named():
    with logs() as written:
        LOG.error("failed", error=TimeoutError())

    assert written.body() == '"failed" err="TimeoutError"'


def test_lists_and_mappings_are_written_as_json():
    with logs() as written:
        LOG.info("m", names=["a", "b"], sizes=(1, 2), more={"x": "y"}, nan=float("nan"))

    assert written.body() == '"m" names=["a","b"] sizes=[1,2] more={"x":"y"} nan="nan"'


def test_a_value_of_several_lines_is_indented():
    with logs() as written:
        LOG.info("m", text='one\n"two"\r\n', after=1)

    assert written.body() == '"m" text=<\n\tone\n\t"two"\\r\n > after=1'


@given(st.text(), st.text())
def test_no_text_can_forge_a_line(message: str, value: str):
    with logs() as written:
        LOG.info(message, value=value)

    assert sum(bool(HEADER.match(line)) for line in written.lines()) == 1


def test_a_bug_is_shown_with_its_traceback_in_the_same_entry():
    with logs() as written:
        try:
            raise KeyError("lost")
        except KeyError as error:
            LOG.exception("Bug", error=error)

    assert written.body().startswith('"Bug" err="\'lost\'" stacktrace=<\n\tTraceback (most recent')
    assert written.body().endswith("\tKeyError: 'lost'\n >")


def test_json_has_the_keys_of_kubernetes_components():
    with logs(LogSettings(format="json", verbosity=4)) as written:
        LOG.info("a", v=4, node="n", token="hush")
        LOG.error("b", error=ValueError("why"))

    first, second = (json.loads(line) for line in written.lines())
    assert first.pop("ts") > 1.5e12
    assert re.fullmatch(r"telemetry/test_klog\.py:\d+", first.pop("caller"))
    assert first == {"msg": "a", "v": 4, "node": "n", "token": "***"}
    assert (second["msg"], second["err"], "v" in second) == ("b", "why", False)


def test_lines_above_the_verbosity_are_not_written_and_it_can_change():
    with logs(LogSettings(verbosity=2)) as written:
        LOG.info("two", v=2)
        LOG.info("four", v=4)
        assert not LOG.enabled(4)
        written.verbosity.set(4)
        assert LOG.enabled(4)
        assert written.verbosity.level == 4
        LOG.info("now four", v=4)
        written.verbosity.set(0)
        LOG.info("gone", v=1)

    assert [line.split("] ")[1] for line in written.lines()] == ['"two"', '"now four"']


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("test_klog", True),
        ("test_k*", True),
        ("test_?log", True),
        ("*/telemetry/*", True),
        ("klog", False),
        ("telemetry", False),
    ],
)
def test_some_files_may_have_a_verbosity_of_their_own(pattern: str, shown: bool):
    with logs(LogSettings(modules=(ModuleLevel(pattern, 5),))) as written:
        LOG.info("five", v=5)
        LOG.info("six", v=6)

    assert len(written.lines()) == shown


def test_a_file_may_also_say_less_than_the_rest():
    with logs(LogSettings(verbosity=5, modules=(ModuleLevel("test_klog", 1),))) as written:
        LOG.info("five", v=5)

    assert written.lines() == []


def test_libraries_are_heard_from_higher_verbosity_on_but_their_warnings_always():
    library = logging.getLogger("somebody.else")
    with logs() as written:
        library.info("quiet")
        library.warning("broken %s\nI0101", "pipe")
    with logs(LogSettings(verbosity=2)) as louder:
        library.info("heard %s", "now")
        library.debug("not this")

    assert written.body() == '"broken pipe\\nI0101"'
    assert louder.body() == "heard now"


def test_split_streams_keep_errors_apart():
    with logs(LogSettings(text_split_stream=True)) as written:
        LOG.info("news")
        LOG.error("bad")

    assert '"news"' in written.out.getvalue()
    assert '"bad"' in written.err.getvalue()
    assert '"news"' not in written.err.getvalue()


def test_buffered_lines_are_written_when_there_are_enough_before_an_error_and_at_the_end():
    with logs(
        LogSettings(text_split_stream=True, text_info_buffer_size=200, flush_frequency=3600)
    ) as written:
        LOG.info("one")
        waiting = written.out.getvalue()
        LOG.info("two", filler="x" * 200)
        both = written.out.getvalue()
        LOG.info("three")
        LOG.error("bad")
        before_the_error = written.out.getvalue()
        LOG.info("four")

    assert waiting == ""
    assert both.count("\n") == 2
    assert before_the_error.count("\n") == 3
    assert written.out.getvalue().count("\n") == 4


def test_a_buffered_line_does_not_wait_longer_than_the_flush_frequency():
    with logs(
        LogSettings(text_split_stream=True, text_info_buffer_size=9999, flush_frequency=0.01)
    ) as written:
        LOG.info("one")
        for _ in range(1000):
            if written.out.getvalue():
                break
            threading.Event().wait(0.01)
        seen = written.out.getvalue()

    assert seen.count("\n") == 1


def test_logging_is_afterwards_as_it_was_before():
    root = logging.getLogger()
    before = (root.level, root.handlers[:])

    with logs(LogSettings(verbosity=9)):
        assert root.handlers != before[1]

    assert (root.level, root.handlers) == before
