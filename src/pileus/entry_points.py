"""Entry points of installed distributions: providers, and commands of the laboratory.

Reads `entry_points.txt` as the packaging specification describes it. `importlib.metadata` does that
too, but imports modules for e-mails and archives: 2.4 MiB and 20 ms of a start.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path

from pileus.dataclass import dataclass

_FILE = "entry_points.txt"
_FOLDERS = (".dist-info", ".egg-info")
_VALUE = re.compile(r"(?P<module>[\w.]+)\s*(?::\s*(?P<name>[\w.]+))?\s*(?:\[(?P<extras>.*)\])?")


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One line of a file `entry_points.txt`, and the distribution that has it."""

    name: str
    value: str
    """Such as `acme_cloud:connect`, or `acme_cloud:connect [extra]`."""
    distribution: str = ""
    version: str = ""

    @property
    def extras(self) -> tuple[str, ...]:
        """The extras of the distribution that this needs."""
        found = _VALUE.fullmatch(self.value)
        named = ((found and found["extras"]) or "").split(",")
        return tuple(filter(None, map(str.strip, named)))

    def load(self) -> object:
        """Imports and returns the object. Raises whatever keeps it from being imported."""
        found = _VALUE.fullmatch(self.value)
        if found is None:
            raise ValueError(f'"{self.value}" does not have the form module:name')
        module = importlib.import_module(found["module"])
        names = found["name"].split(".") if found["name"] else ()
        return reduce(getattr, names, module)


def entry_points(group: str, path: Iterable[str] | None = None) -> Iterator[EntryPoint]:
    """Returns the entry points of a group, of all distributions in the folders of `sys.path`.

    A distribution that is in several of them counts once. Archives are not looked into.
    """
    seen: set[str] = set()
    for folder in sys.path if path is None else path:
        for info in _distributions(folder):
            name, version, *_ = (*info.rpartition(".")[0].split("-"), "")
            name = re.sub(r"[-_.]+", "-", name).lower()
            if name not in seen:
                seen.add(name)
                yield from _of_file(Path(folder, info, _FILE), group, name, version)


def _distributions(folder: str) -> Sequence[str]:
    try:
        return sorted(name for name in os.listdir(folder or ".") if name.endswith(_FOLDERS))
    except OSError:  # sys.path may name folders that do not exist, and archives
        return ()


def _of_file(file: Path, group: str, distribution: str, version: str) -> Iterator[EntryPoint]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # a distribution without entry points has no such file
        return
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == group and "=" in line and not line.startswith("#"):
            name, _, value = map(str.strip, line.partition("="))
            yield EntryPoint(name, value, distribution, version)
