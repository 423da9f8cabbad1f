"""Builds one program from a Go module, once, into a cache outside of the clone.

The folder `tools/NAME` has the go.mod and go.sum that pin it. The cache folder has a hash of all
that shapes the binary as its name, so that a second run costs nothing.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools.build_control_plane import NO_GO, cache_folder, find_go

TOOLS = Path(__file__).resolve().parent
SETTINGS = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
TAIL = 20
REPORT_EVERY = 20.0


@dataclass(frozen=True)
class GoProgram:
    """A program: the folder of its module, its package, and the flags of `go build`.

    A package of the module itself is given as a path that begins with `./`.
    """

    module: str
    package: str
    flags: tuple[str, ...] = ("-trimpath", "-buildvcs=false", "-ldflags", "-s -w")

    def binary(self) -> Path:
        """Returns where the binary is, or will be."""
        folder = TOOLS / self.module
        files = [folder / "go.mod", folder / "go.sum"]
        if self.package.startswith("./"):
            files += sorted((folder / self.package).glob("*.go"))
        shaping = [file.read_bytes() for file in files]
        key = hashlib.sha256(b"".join(shaping) + " ".join(self.flags).encode()).hexdigest()[:16]
        return cache_folder() / self.module / key / self.package.rpartition("/")[2]

    def main(self) -> int:
        """Build it if need be, and print its path. Returns 3 if there is no Go."""
        code = self.build()
        if not code:
            print(self.binary())
        return code

    def build(self) -> int:
        """Build it if need be. Returns 0, or 3 if there is no Go."""
        path = self.binary()
        if not path.exists():
            go = find_go(cache_folder())
            if go is None:
                self._say("no Go 1.26 on the PATH, and none from PyPI: cannot build it")
                return NO_GO
            self._build(go, path)
        return 0

    def _build(self, go: Path, path: Path) -> None:
        """Build it; the file appears under its name only when it is complete."""
        path.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="building-") as scratch:
            result = Path(scratch) / path.name
            self._compile(go, result)
            result.rename(path)
        self._say(f"built in {time.monotonic() - started:.0f} s")

    def _compile(self, go: Path, result: Path) -> None:
        command = [str(go), "build", "-v", *self.flags, "-o", str(result), self.package]
        environment = os.environ | SETTINGS
        reported = time.monotonic()
        lines: list[str] = []
        with subprocess.Popen(
            command, cwd=TOOLS / self.module, env=environment, stderr=subprocess.PIPE, text=True
        ) as building:
            for line in building.stderr or ():
                lines.append(line)
                if time.monotonic() - reported > REPORT_EVERY:
                    reported = time.monotonic()
                    self._say(f"{len(lines)} packages")
        if building.returncode:
            sys.stderr.writelines(lines[-TAIL:])
            sys.exit(f"{self.module}: the build failed")

    def _say(self, text: str) -> None:
        print(f"{self.module}: {text}", file=sys.stderr, flush=True)
