"""Links in our pages lead somewhere, and the walk through the files names what is there."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for page in ROOT.glob(pattern)
)
WALK = ROOT / "docs" / "explanation" / "architecture.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?: (?:\"[^\"]*\"|'[^']*'))?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| \[[^\]]+\]\((?P<file>[^)]+)\) \| (?P<names>`[^|]+`) \| ", re.MULTILINE)


def anchors(page: str) -> set[str]:
    """The places of a page that can be linked to, named as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def broken(page: Path) -> list[str]:
    found: list[str] = []
    for target in LINK.findall(CODE.sub("", page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            found.append(target)
    return found


def defined(source: str) -> set[str]:
    """Every name that a module defines: functions, methods, classes and module constants."""
    tree = ast.parse(source)
    names = {
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assigned = [each for each in tree.body if isinstance(each, ast.Assign)]
    return names | {
        target.id for each in assigned for target in each.targets if isinstance(target, ast.Name)
    }


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_every_link_leads_somewhere(page: Path):
    assert not broken(page)


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A b\n[ok](#a-b) [no](#c) [no](gone.md) `[code](x)` [ok](page.md#a-b) [no](x.py 't')\n"
    )

    assert broken(page) == ["#c", "gone.md", "x.py"]


def test_the_walk_names_what_is_in_the_files():
    rows = list(ROW.finditer(WALK.read_text()))

    for row in rows:
        source = (WALK.parent / row["file"]).read_text()
        missing = set(re.findall(r"`(\w+)`", row["names"])) - defined(source)
        assert not missing, f"{row['file']} has no {', '.join(sorted(missing))}"
    assert len(rows) > 30


def test_the_walk_knows_every_layer():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [
        line for one in rules["contracts"] if one["type"] == "layers" for line in one["layers"]
    ]
    shown = WALK.read_text().partition("## The layers")[2].partition("## One Node")[0]
    lines = [re.split(r" {2,}", line.strip()) for line in shown.splitlines() if line[:4] == "    "]

    drawn = [re.split(r" [│|] ", line[0]) for line in lines]
    assert drawn == [line.split(" | ") for line in layers]
