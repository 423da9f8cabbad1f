"""Hatchling's build hook: writes the commit into distributions, for `pileus --version`."""

import runpy
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STAMP = "commit.txt"


class StampCommit(BuildHookInterface[Any]):
    """Adds nothing to an editable installation, which reads the checkout itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "src", "pileus")
        found = runpy.run_path(str(source / "version.py"))["commit"]()
        if version == "editable" or (source / STAMP).exists() or found == "unknown":
            return
        self._folder = tempfile.TemporaryDirectory()
        stamp = Path(self._folder.name, STAMP)
        stamp.write_text(f"{found}\n", encoding="ascii")
        place = "pileus" if self.target_name == "wheel" else "src/pileus"
        build_data["force_include"][str(stamp)] = f"{place}/{STAMP}"
