"""`pileus demo` reads its flags before it loads anything; the demo itself has its own tests."""

import io

import pytest

from pileus.cli.main import dispatch
from pileus.cli.terminal import Terminal


def call(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = dispatch(("demo", *arguments), Terminal(out, err, {}))
    return code, out.getvalue(), err.getvalue()


def test_help_says_what_it_is_and_lists_the_flags():
    code, out, err = call("--help")

    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert all(word in words for word in ("--once", "--state-dir", "nothing behind"))


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("--onec", 'unknown flag "--onec"\ndid you mean --once?'),
        ("--onec=1", 'unknown flag "--onec"\ndid you mean --once?'),
        ("--prot=1", 'unknown flag "--prot"\nUsage:'),
        ("now", 'unknown argument "now"'),
        ("--state-dir", "expected one argument"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_what_was_meant(argument: str, told: str):
    code, out, err = call(argument)

    assert (code, out) == (1, "")
    assert told in err


def test_a_folder_that_cannot_be_used_is_refused_by_name():
    code, _, err = call("--once", "--state-dir", "/dev/null/demo")

    assert code == 1
    assert err.startswith("Error: cannot use /dev/null/demo: ")
