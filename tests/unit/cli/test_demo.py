"""`pileus demo` reads its flags before it loads anything; the demo itself has its own tests."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

import pileus
from pileus.cli.main import dispatch
from pileus.cli.terminal import Terminal
from pileus_lab.cli.demo import typed


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


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(str(Path(sys.executable).parent / "pileus"), id="a script"),
        pytest.param(str(Path(pileus.__file__).parent / "__main__.py"), id="python -m pileus"),
    ],
)
def test_the_commands_to_try_run_in_a_shell(path: str):
    done = subprocess.run(
        ["/bin/sh", "-c", f"{typed(path)} version"], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("Pileus")
