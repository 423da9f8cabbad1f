"""Every command that our pages show is run, and prints what they say.

A page's blocks of the kind ```console are one session in one shell, in the page's order: lines with
`$ ` are typed, the lines after them are expected. `…` stands for anything within a line; a line
that is only `…` stands for any number of lines. A page that says `<!-- needs: a cluster -->` gets
a real control plane, with `KUBECONFIG` and `kubectl`; one that says `<!-- needs: kubectl -->` that
alone. Without them its test is skipped. Pages that say `<!-- needs: openstack -->` are run by
`tests/openstack/test_guides.py`. A block of Python that begins with `# name.py` is a file of
that name beside the session; `<!-- with: page.md -->` brings those of another page too.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.guides import files_of

ROOT = Path(__file__).resolve().parents[2]
BINARIES = "PILEUS_CONTROL_PLANE"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS_CLUSTER = "<!-- needs: a cluster -->"
NEEDS_KUBECTL = "<!-- needs: kubectl -->"
NEEDS_OPENSTACK = "<!-- needs: openstack -->"
AT_HAND = ("examples", "deploy")
"""Folders of the clone that the commands of a page find beside them."""
LIMIT = 300
END = "end-of-step"


@dataclass(frozen=True)
class Step:
    command: str
    expected: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    code: int
    printed: str


def pages() -> Iterator[object]:
    absent = pytest.mark.skipif(
        not os.environ.get(BINARIES), reason=f"no real control plane: {BINARIES} is not set"
    )
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text()
        if BLOCK.search(text) and NEEDS_OPENSTACK not in text:
            marks = [
                pytest.mark.long,
                *((pytest.mark.real_cluster,) if NEEDS_CLUSTER in text else ()),
                *((absent,) if NEEDS_CLUSTER in text or NEEDS_KUBECTL in text else ()),
            ]
            yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


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


def perform(steps: list[Step], folder: Path, environment: dict[str, str]) -> list[Done]:
    """Type all commands into one shell, up to the first that fails; what it began, ends with it."""
    asked = "".join(
        f"{step.command}\ncode=$?\nprintf '\\n{END} %s\\n' $code\n[ $code = 0 ] || exit $code\n"
        for step in steps
    )
    script, output = folder / ".session.sh", folder / ".session.out"
    script.write_text(asked)
    with output.open("w") as written:
        shell = subprocess.Popen(
            ["bash", str(script)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            shell.wait(LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    parts = re.split(rf"\n{END} (\d+)\n", output.read_text())
    return [
        Done(int(code), printed) for printed, code in zip(parts[::2], parts[1::2], strict=False)
    ]


@pytest.fixture
def surroundings(page: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    for name in AT_HAND:
        (tmp_path / name).symlink_to(ROOT / name)
    for name, text in files_of(page).items():
        (tmp_path / name).write_text(text)
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    found = os.environ | {
        "PILEUS_CHECKOUT": str(ROOT),
        "HOME": str(tmp_path),
        "COLUMNS": "120",
    }
    text = page.read_text()
    with contextlib.ExitStack() as stack:
        if NEEDS_CLUSTER in text:
            cluster = ControlPlane(Path(os.environ[BINARIES]), tmp_path / ".cluster")
            found["KUBECONFIG"] = str(stack.enter_context(cluster).admin)
        if NEEDS_CLUSTER in text or NEEDS_KUBECTL in text:
            path.insert(0, os.environ[BINARIES])
        yield found | {"PATH": os.pathsep.join(path)}


@pytest.mark.real_time
@pytest.mark.timeout(2 * LIMIT)
@pytest.mark.parametrize("page", list(pages()))
def test_the_commands_of_a_page_work(
    page: Path, tmp_path: Path, surroundings: dict[str, str]
) -> None:
    steps = steps_of(page.read_text())

    performed = perform(steps, tmp_path, surroundings)

    for step, done in zip(steps, performed, strict=False):
        told = f"$ {step.command}\n{done.printed}"
        assert done.code == 0, told
        assert not step.expected or matches(step.expected, done.printed), told
    assert len(performed) == len(steps)


@pytest.mark.real_time
def test_a_session_is_one_shell_and_ends_at_the_first_failure(tmp_path: Path) -> None:
    steps = [
        Step(command, ()) for command in ("x=5; sleep 600 &", "echo $x; kill $!", "false", "echo")
    ]

    performed = perform(steps, tmp_path, dict(os.environ))

    assert performed == [Done(0, ""), Done(0, "5\n"), Done(1, "")]


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
