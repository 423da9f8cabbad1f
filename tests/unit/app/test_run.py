"""Of all that went wrong at once, one thing says how the program ends."""

import pytest

from pileus.app.ending import CommandFailed, Fatal
from pileus.app.run import ending_of
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
