"""The page of `pileus doctor` lists every check and every finding, and no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pileus.fix import PROGRAMS
from pileus.doctor.doctor import CHECKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/doctor.md").read_text()
SOURCES = (*(ROOT / "src/pileus/doctor").glob("*.py"), ROOT / "src/pileus/cloud/finding.py")
FINDING = re.compile(
    r'(?:error|warning|note|make)\)?\(\s*"([a-z-]+)"'
    r'|\bid="([a-z-]+)"(?: if is_full else "([a-z-]+)")?'
)


def rows(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)


def test_every_check_is_listed_in_order() -> None:
    assert rows("Checks") == [check.id for check in CHECKS]


def test_every_finding_is_listed() -> None:
    found = {
        name
        for source in SOURCES
        for match in FINDING.findall(source.read_text())
        for name in match
        if name
    }

    assert len(found) > 30
    assert sorted(rows("Findings")) == sorted(found)


def test_every_finding_of_openstack_is_listed() -> None:
    source = (ROOT / "src/pileus/providers/openstack/checks.py").read_text()
    page = (ROOT / "docs/reference/openstack.md").read_text()
    section = page.partition("## Findings of pileus doctor\n")[2].partition("\n## ")[0]
    found = set(re.findall(r'\bid="([a-z-]+)"(?: if is_role else "([a-z-]+)")?', source))
    names = {name for pair in found for name in pair if name}

    assert len(names) == 7
    assert all(f"| `{name}` |" in section for name in names)


READS = re.compile(
    r"(?:kubectl (?:--\S+ )*(?:cluster-info|get|logs|version)|pileus (?:doctor|explain|plan))\b"
)
TEXTS_AND_READS = {
    "kubelet-flag-missing": "what to do on the machines",
    "webhook-without-ca": "events",
    "webhook-ca-differs": "events",
    "node-uninitialized": "depends on the reason: tests/unit/app/test_explain.py",
    "lease-expired": "kubectl get",
    "lease-released": "as lease-missing",
    "service-deletion-stuck": "explain, or as lease-missing",
    "attachment-failing": "explain",
    "attachment-stuck": "explain",
    "detachment-stuck": "explain",
    "not-readable": "what the unread part says",
}
"""Findings whose fix is made elsewhere, and changes nothing when it is pasted."""


def fixes() -> Iterator[tuple[str, str]]:
    """Yields the ID of each finding with its fix; `…` is what is known at run time only."""
    trees = (ast.parse(source.read_text()) for source in SOURCES[:-1])
    for node in (one for tree in trees for one in ast.walk(tree) if isinstance(one, ast.Call)):
        id_ = argument(node, "id") or (node.args[0] if node.args else None)
        name = id_.value if isinstance(id_, ast.Constant) else None
        fix = argument(node, "fix")
        if fix and isinstance(name, str) and re.fullmatch(r"[a-z-]+", name):
            yield name, written(fix)


def argument(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def written(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(written, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "…"


def test_every_fix_that_changes_something_is_pasted_into_a_cluster() -> None:
    pasted = set(
        re.findall(
            r'(?:findings\(|fixes\[|\["id"\] == )"([a-z-]+)"',
            (ROOT / "tests/real/test_doctor_fixes.py").read_text(),
        )
    )
    found = dict(fixes())
    changing = {
        name
        for name, fix in found.items()
        if (fix.startswith("…") or fix.split()[0] in PROGRAMS) and not READS.match(fix)
    }

    assert len(found) > 45
    assert {"right-missing", "lease-left", "clock-skew"} <= changing
    assert changing - TEXTS_AND_READS.keys() - pasted == {"clock-skew"}
    assert TEXTS_AND_READS.keys() <= found.keys()
