"""Plays kubectl command lines on one server, and tells what they said without what must differ."""

import os
import re
import shlex
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LIMIT = 60.0
EDITOR = "sed -i s/before/after/"


@dataclass(frozen=True)
class Said:
    """What one command said: how it ended, and its lines."""

    code: int
    lines: tuple[str, ...]
    complaints: tuple[str, ...]

    @property
    def said(self) -> str:
        return "\n".join((*self.lines, *self.complaints, f"exit {self.code}"))


@dataclass(frozen=True)
class Session:
    """Kubectl in a folder of its own, whose files the command lines may name."""

    kubectl: Path
    kubeconfig: Path
    folder: Path
    namespace: str = "default"

    def play(self, line: str) -> Said:
        done = subprocess.run(
            self._command(line),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=self._environment(),
            timeout=LIMIT,
        )
        return Said(done.returncode, normal(done.stdout), normal(done.stderr))

    @contextmanager
    def follow(self, line: str) -> Generator[Iterator[str]]:
        """Start a command that does not end by itself; yields its lines as they come."""
        with subprocess.Popen(
            self._command(line),
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self._environment(),
        ) as process:
            assert process.stdout is not None
            try:
                yield (normal(said)[0] for said in process.stdout)
            finally:
                process.kill()

    def _command(self, line: str) -> list[str]:
        own = (f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}")
        return [str(self.kubectl), *own, *shlex.split(line)]

    def _environment(self) -> dict[str, str]:
        home = str(self.kubeconfig.parent)
        path = os.environ.get("PATH", "")
        return {"HOME": home, "PATH": path, "KUBE_EDITOR": EDITOR, "TZ": "UTC"}


MASKS = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"ey[\w-]+\.[\w-]+\.[\w-]+", "TOKEN"),
    (r"https://127\.0\.0\.1:\d+", "SERVER"),
    (r"127\.0\.0\.1:\d+", "SERVER"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "TIME"),
    (r"(?<=resourceVersion: )\S+", "VERSION"),
    (r"(?<=Resource Version:)\s+\d+", " VERSION"),
    (r"(?<=\"resourceVersion\": )\"\d+\"", "VERSION"),
    (r"\b10\.0\.\d+\.\d+\b", "IP"),
    (r"\b3[0-2]\d{3}\b", "NODE-PORT"),
    (r"(?<=\s)(\d+[smh])+(?=\s|$)", "AGE"),
    (r"(?<=/)(LIVE|MERGED)-\d+", r"\1"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000", "TIME"),
    (r"(?<=edit-)\d+(?=\.yaml)", "FILE"),
    (r"[ \t]{2,}", "  "),  # a column is as wide as its widest cell, masked or not
    (r"\s+$", ""),
)
"""What a server chooses by itself, or by its clock."""


def normal(text: str) -> tuple[str, ...]:
    """Return the text's lines without what differs between any two servers."""
    return tuple(_masked(line) for line in text.splitlines())


def _masked(line: str) -> str:
    for pattern, name in MASKS:
        line = re.sub(pattern, name, line)
    return line
