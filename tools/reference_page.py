"""Writes a generated page: what the reference writers do with their text."""

import sys
from pathlib import Path


def write(page: Path, text: str) -> None:
    page.write_text(text, encoding="utf-8")
    sys.stdout.write(f"wrote {page.name}\n")
