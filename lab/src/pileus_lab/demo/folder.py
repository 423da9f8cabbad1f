"""The folder with the demo's few files: made at the start, gone at the end."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LONGEST_SOCKET = 100
"""Bytes; systems allow a socket's path little more."""


class Unusable(Exception):
    """The folder cannot be used; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def cloud_config(self) -> Path:
        return self.path / "cloud.yaml"

    @property
    def socket(self) -> Path:
        return self.path / "local.sock"

    @property
    def log(self) -> Path:
        return self.path / "manager.log"

    @property
    def files(self) -> tuple[Path, ...]:
        """All that the demo ever puts there."""
        return (self.kubeconfig, self.cloud_config, self.socket, self.log)


@contextmanager
def state_folder(wanted: Path | None) -> Generator[Folder]:
    """A folder of our own; None: a new one among the system's temporary ones.

    Guarantees: in the end our files are gone, and the folder if it is empty and we made it; what
    somebody else put there stays. Errors: `Unusable`.
    """
    made, path = _make(wanted)
    folder = Folder(path)
    try:
        if len(os.fsencode(folder.socket)) > LONGEST_SOCKET:
            raise Unusable(f"{path} is too long a path for a socket; name one with --state-dir")
        yield folder
    finally:
        for file in folder.files:
            file.unlink(missing_ok=True)
        if made:
            with suppress(OSError):
                path.rmdir()


def _make(wanted: Path | None) -> tuple[bool, Path]:
    try:
        if wanted is None:
            return True, Path(tempfile.mkdtemp(prefix="pileus-demo-"))
        path = wanted.absolute()
        made = not path.exists()
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if found := sorted(file.name for file in path.iterdir()):
            raise Unusable(
                f"{path} is not empty ({found[0]}): another demo may run there; "
                "stop that one, or name another folder with --state-dir"
            )
    except OSError as error:
        where = wanted or tempfile.gettempdir()
        raise Unusable(f"cannot use {where}: {error.strerror}; try --state-dir") from error
    return made, path
