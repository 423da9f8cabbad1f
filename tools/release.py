"""Steps of a release that a program does better: RELEASING.md has the whole list.

python -m tools.release bump 0.2.0     the new version, in every file that has it
python -m tools.release check v0.2.0   everything agrees with this tag, or what does not
python -m tools.release dist           sdist and wheel of both distributions, into dist
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)((a|b|rc)\d+)?")
PLACES = (
    ("pyproject.toml", r'^version = "(.+)"$'),
    ("pyproject.toml", r'^lab = \["pileus-lab==(.+?)"\]'),
    ("lab/pyproject.toml", r'^version = "(.+)"$'),
    ("lab/pyproject.toml", r'^dependencies = \["pileus==(.+?)"'),
    ("src/pileus/version.py", r'^PILEUS = "(.+)"$'),
    ("deploy/chart/pileus/Chart.yaml", r"^version: (\S+)$"),
    ("deploy/chart/pileus/Chart.yaml", r'^appVersion: "?([^"\s]+)"?$'),
)
"""Each file and the line in it that has the version."""
CHANGES = "CHANGELOG.md"
HEADING = re.compile(r"^## (\S+)(?: \((.+)\))?$", re.MULTILINE)
OPEN = "not released"
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    match list(arguments):
        case ["bump", version]:
            return _report(list(bump(version, root)))
        case ["check", tag]:
            return _report(list(problems(tag, root)))
        case ["dist"]:
            build(root, root / "dist")
            return 0
        case _:
            return _report([(__doc__ or "").partition("\n\n")[2].rstrip()])


def _report(messages: Sequence[str]) -> int:
    for message in messages:
        print(message, file=sys.stderr)
    return 1 if messages else 0


def bump(version: str, root: Path) -> Iterator[str]:
    """Write the version into every place, and open a section of the changes. Yields problems."""
    if not VERSION.fullmatch(version):
        yield f'"{version}" is not a version: use X.Y.Z, with a1, b1 or rc1 for a pre-release'
        return
    for name, line in PLACES:
        path = root / name
        text = path.read_text(encoding="utf-8")
        found = re.search(line, text, re.MULTILINE)
        if found is None:
            yield f"{name}: no line matches {line}"
            continue
        path.write_text(text[: found.start(1)] + version + text[found.end(1) :], encoding="utf-8")
    changes = root / CHANGES
    text = changes.read_text(encoding="utf-8")
    latest = HEADING.search(text)
    if latest is None or latest[1] != version:
        place = latest.start() if latest else len(text)
        section = f"## {version} ({OPEN})\n\n"
        changes.write_text(text[:place] + section + text[place:], encoding="utf-8")


def problems(tag: str, root: Path) -> Iterator[str]:
    """Yields what does not agree with the tag, and how to fix it."""
    version = tag.removeprefix("v")
    if tag == version or not VERSION.fullmatch(version):
        yield f'"{tag}" is not a tag of a release: use vX.Y.Z'
        return
    for name, line in PLACES:
        found = re.search(line, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if found is None or found[1] != version:
            has = found[1] if found else "no version"
            yield f"{name} has {has}, not {version}: run python -m tools.release bump {version}"
    latest = HEADING.search((root / CHANGES).read_text(encoding="utf-8"))
    if latest is None or latest[1] != version:
        yield f"{CHANGES} does not begin with {version}: add the section"
    elif not DAY.fullmatch(latest[2] or ""):
        yield f"{CHANGES}: {version} has no date: write ## {version} (YYYY-MM-DD)"


def build(root: Path, folder: Path) -> None:
    """Build sdist and wheel of both distributions. Two builds of a commit give the same bytes."""
    for project in (root, root / "lab"):
        command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
        subprocess.run(command, cwd=project, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
