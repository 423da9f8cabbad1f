"""Every command that our pages show is run, and prints what they say.

A page's blocks of the kind ```console are one session, in the page's order: lines with `$ ` are
typed, the lines after them are expected. `…` stands for anything within a line; a line that is
only `…` stands for any number of lines.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
LIMIT = 120
pages = sorted(
    page
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if BLOCK.search(page.read_text())
)


@dataclass(frozen=True)
class Step:
    command: str
    expected: tuple[str, ...]


def steps_of(page: str) -> list[Step]:
    steps: list[Step] = []
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *expected = part.rstrip("\n").split("\n")
            while command.endswith("\\") and expected:
                command = f"{command[:-1]}{expected.pop(0)}"
            steps.append(Step(command, tuple(expected)))
    return steps


def matches(expected: tuple[str, ...], printed: str) -> bool:
    lines = [".*\n" if line != "…" else "(?:.*\n)*" for line in expected]
    for number, line in enumerate(expected):
        if line != "…":
            lines[number] = ".*".join(re.escape(part) for part in line.rstrip().split("…")) + " *\n"
    return (
        re.fullmatch(
            "".join(lines), printed if not printed or printed.endswith("\n") else f"{printed}\n"
        )
        is not None
    )


@pytest.mark.real_time
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in pages])
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "PILEUS_CHECKOUT": str(ROOT),
        "HOME": str(tmp_path),
        "COLUMNS": "120",
    }
    for step in steps_of(page.read_text()):
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, f"$ {step.command}\n{done.stdout}"
        assert not step.expected or matches(step.expected, done.stdout), (
            f"$ {step.command}\n{done.stdout}"
        )


@pytest.mark.parametrize(
    ("expected", "printed", "matching"),
    [
        (("a", "b"), "a\nb\n", True),
        (("a", "…"), "a\nb\nc\n", True),
        (("a … c",), "a b c\n", True),
        (("a", "c"), "a\nb\n", False),
        (("a",), "a\nb\n", False),
        (("…", "z"), "z\n", True),
    ],
)
def test_what_counts_as_printed(expected: tuple[str, ...], printed: str, matching: bool) -> None:
    assert matches(expected, printed) is matching
