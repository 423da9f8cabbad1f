"""Certificates and keys as a configuration gives them: inline, or in a file that may change."""

import base64
import binascii
import os
from dataclasses import dataclass, field
from pathlib import Path

from pileus.kube.config.errors import InvalidConfiguration, reason

Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Inline:
    """PEM that stands in the configuration itself."""

    origin: str
    """Where it came from, for messages."""
    content: bytes = field(repr=False)

    def read(self) -> bytes:
        return self.content

    def stamp(self) -> Stamp | None:
        return None


@dataclass(frozen=True, slots=True)
class InFile:
    """PEM in a file, which somebody may renew while we run."""

    origin: str
    path: Path

    def read(self) -> bytes:
        """Return the content. Errors: `InvalidConfiguration`, naming origin and reason."""
        try:
            return self.path.read_bytes()
        except OSError as e:
            raise InvalidConfiguration(f"cannot read {self.origin}: {reason(e)}") from None

    def stamp(self) -> Stamp | None:
        """What differs once the file (or what a symbolic link names) is another."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


Pem = Inline | InFile


def pem(field_name: str, data: str | None, file: str | None, folder: Path) -> Pem | None:
    """Return `<field_name>-data` if it is there, else the file of `<field_name>`, else None.

    A relative file is one of `folder`, where the configuration lies.
    """
    if data:
        return Inline(f"{field_name}-data", _decode(f"{field_name}-data", data))
    if file:
        path = folder / file
        return InFile(f"{field_name} {path}", path)
    return None


def _decode(name: str, data: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidConfiguration(f"{name} is not base64") from None
