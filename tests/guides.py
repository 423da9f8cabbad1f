"""The Python files that our pages show, for those who run them."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
FILE = re.compile(r"^```python\n(# (\w+\.py)\n.*?)^```", re.MULTILINE | re.DOTALL)
WITH = re.compile(r"<!-- with: (\S+) -->")


def files_of(page: Path) -> Mapping[str, str]:
    """Those of the page, and of the pages that it says it goes with."""
    text = page.read_text()
    found = {name: source for source, name in FILE.findall(text)}
    for other in WITH.findall(text):
        found = {**files_of(page.parent / other), **found}
    return found


def module(page: str, name: str) -> Any:
    """One of a guide's files, imported under its own name."""
    made = ModuleType(name)
    sys.modules[name] = made  # where dataclasses look for annotations, and other files for this one
    source = files_of(GUIDES / page)[f"{name}.py"]
    exec(compile(source, f"{page}/{name}.py", "exec"), made.__dict__)
    return made
