"""A mutant: the product with one guard removed, by replacing one piece of one module's source."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
CHOSEN = "PILEUS_MUTANT"
"""The environment variable with the name of the mutant that a process plants."""
FAILED = "PILEUS_MUTANT_FAILED"
"""The environment variable with the file that names what failed in that process."""


class Danger(StrEnum):
    """What a mutant could do in production. Only mutants of the kind `NONE` may survive."""

    DELETION = "deletion"
    OWNERSHIP = "ownership"
    FENCING = "fencing"
    VETO = "veto"
    LEAK = "leak"
    """Something stays in the cloud that no object of the cluster needs."""
    DISCLOSURE = "disclosure"
    """A secret, or what belongs to others, is shown."""
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    module: str
    """Relative to `pileus`."""
    before: str
    """Occurs exactly once in the module's source."""
    after: str
    tests: str
    """The tests of that part, separated by spaces: paths under tests/unit, or those that begin with
    tests/."""
    danger: Danger = Danger.NONE
    scenario: str = "mixed"
    """Of the simulation, played if the unit tests do not find it."""
    unsimulated: str = ""
    """Why no simulation can show it: what it changes does not run there."""

    def applied(self, source: str) -> str:
        """Return the module's source with the defect. Raises ValueError if it does not apply."""
        if source.count(self.before) != 1:
            raise ValueError(
                f"mutant {self.name!r}: {self.before!r} occurs {source.count(self.before)} times "
                f"in pileus.{self.module}, not once. Adapt the mutant to the code"
            )
        return source.replace(self.before, self.after)

    def applies(self) -> bool:
        """Whether the piece occurs once in the module as it is now."""
        return self.path.read_text(encoding="utf-8").count(self.before) == 1

    @property
    def cloud(self) -> str:
        """The cloud that the simulation plays: the one whose provider has the defect."""
        return "openstack" if self.module.startswith("providers.openstack.") else "local"

    @property
    def path(self) -> Path:
        return ROOT.joinpath("src", "pileus", *self.module.split(".")).with_suffix(".py")

    @property
    def test_paths(self) -> tuple[str, ...]:
        """Relative to the project."""
        given = self.tests.split()
        return tuple(one if one.startswith("tests/") else f"tests/unit/{one}" for one in given)

    @property
    def needs_loop_devices(self) -> bool:
        """Whether its tests use loop devices."""
        paths = (ROOT / one for one in self.test_paths)
        files = (file for path in paths for file in (path, *path.rglob("*.py")) if file.is_file())
        return any("tests.loop_devices" in file.read_text(encoding="utf-8") for file in files)


class _Loader(SourceFileLoader):
    def __init__(self, mutant: Mutant, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> object:  # type: ignore[override] -- never from a cache
        source = self._mutant.applied(Path(self.path).read_text(encoding="utf-8"))
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != f"pileus.{self._mutant.module}":
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            return None
        loader = _Loader(self._mutant, fullname, found.origin)
        return importlib.util.spec_from_loader(fullname, loader)


def plant(mutant: Mutant) -> None:
    """Make this process import the mutated module. Raises if it is imported already."""
    if f"pileus.{mutant.module}" in sys.modules:
        raise RuntimeError(f"pileus.{mutant.module} is imported already")
    sys.meta_path.insert(0, _Finder(mutant))


def chosen() -> str:
    return os.environ.get(CHOSEN, "")
