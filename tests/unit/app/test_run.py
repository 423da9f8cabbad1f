"""How the program ends: by a signal, by two, or by the one that counts of all its errors."""

import signal
import subprocess
import sys
import textwrap

import pytest

from pileus.app.errors import CommandFailed, Fatal
from pileus.app.run import ending_of, loop_factory
from pileus.runtime.leadership import LeadershipLost

LOST, FATAL, FAILED, BUG = LeadershipLost("l"), Fatal("f"), CommandFailed("c"), KeyError("b")


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (FATAL, FATAL),
        (BUG, BUG),
        (ExceptionGroup("", [BUG, FAILED]), FAILED),
        (ExceptionGroup("", [FAILED, FATAL]), FATAL),
        (ExceptionGroup("", [FATAL, ExceptionGroup("", [BUG, LOST])]), LOST),
        (BaseExceptionGroup("", [KeyboardInterrupt(), FATAL]), FATAL),
    ],
)
def test_a_known_ending_is_found_however_deep(error: BaseException, ending: BaseException):
    assert ending_of(error) is ending


def test_bugs_stay_together_as_they_came():
    group = ExceptionGroup("", [BUG, ValueError("x")])

    assert ending_of(group) is group


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (RuntimeError("unable to perform operation on <x>; the handler is closed"), False),
        (RuntimeError("a bug"), True),
        (ValueError("the handler is closed"), True),
    ],
)
def test_bytes_for_a_closed_tls_connection_are_no_error(
    error: Exception, reported: bool, caplog: pytest.LogCaptureFixture
):
    make = loop_factory()
    assert make
    loop = make()
    try:
        loop.call_exception_handler({
            "message": "Fatal error on SSL protocol",
            "exception": error,
            "protocol": object(),
        })
    finally:
        loop.close()

    assert ("Fatal error on SSL protocol" in caplog.text) == reported


def ended(work: str, *signals: signal.Signals, patience: float = 60.0) -> tuple[int, str]:
    """The exit code and the log of a program that does such work and is signalled meanwhile."""
    program = f"""
import asyncio, logging
from pileus.app.run import until_signalled
logging.basicConfig(level=logging.INFO)

async def work():
    try:
        print("at work", flush=True)
        await asyncio.sleep(600)
    finally:
{textwrap.indent(work, " " * 8)}

asyncio.run(until_signalled(work, patience={patience}))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stderr
        said = child.stdout.readline()
        for sign in signals:
            child.send_signal(sign)
            said = child.stdout.readline()
        log = child.stderr.read()
        return child.wait(timeout=60), f"{said}{log}"


LINGER = 'print("ending", flush=True); await asyncio.sleep(600)'


@pytest.mark.real_time
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_the_work_ends_in_order(sign: signal.Signals):
    code, said = ended('await asyncio.sleep(0); print("released", flush=True)', sign)

    assert code == 0
    assert "released" in said
    assert "Stopping" in said


@pytest.mark.real_time
def test_a_second_signal_waits_for_nothing():
    code, said = ended(LINGER, signal.SIGTERM, signal.SIGINT)

    assert code == 128 + signal.SIGINT
    assert "Ended without waiting" not in said


@pytest.mark.real_time
def test_work_that_does_not_end_in_time_is_told_and_left():
    code, said = ended(LINGER, signal.SIGTERM, patience=0.2)

    assert code == 1
    assert "Exiting without waiting for unfinished tasks" in said
