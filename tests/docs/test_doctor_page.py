"""The page of `pileus doctor` lists every check and every finding, and no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pileus.doctor.doctor import CHECKS
from pileus.fix import commands_in

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
    r"kubectl (?:--\S+ )*(?:cluster-info|get|logs|version)\b"
    r"|pileus (?:doctor|explain|orphans|plan)\b|pileus manifests\b[^|]*$"
)
TEXTS_AND_READS = {
    "clock-skew": "changes the clock of the machine",
    "webhook-without-ca": "events",
    "webhook-ca-differs": "events",
    "node-uninitialized": "depends on the reason: tests/unit/app/test_explain.py",
    "lease-expired": "kubectl get",
    "lease-released": "as lease-missing",
    "quota-nearly-used": "as quota-used-up",
    "service-deletion-stuck": "explain, or as lease-missing",
    "attachment-failing": "explain",
    "attachment-stuck": "explain",
    "detachment-stuck": "explain",
    "not-readable": "what the unread part says",
}
"""Findings whose fix is made elsewhere, or changes nothing when it is pasted."""


def fixes() -> Iterator[tuple[str, str]]:
    """Yields the ID of each finding with its fix; `…` is what is known at run time only."""
    trees = (ast.parse(source.read_text()) for source in SOURCES)
    for node in (one for tree in trees for one in ast.walk(tree) if isinstance(one, ast.Call)):
        fix, id_ = argument(node, "fix"), argument(node, "id")
        if id_ is None and node.args:
            id_ = node.args[0]
        if fix is None or id_ is None:
            continue
        for name in constants(id_):
            if re.fullmatch(r"[a-z-]+", name):
                yield name, written(fix)


def argument(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def constants(node: ast.expr) -> Iterator[str]:
    """Yields the texts that an expression may be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*constants(node.body), *constants(node.orelse))


def written(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(written, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "…"


def may_change_something(fix: str) -> bool:
    return fix.startswith("…") or any(not READS.match(each) for each in commands_in(fix))


def test_commands_in_comments_and_after_advice_count() -> None:
    assert may_change_something("kubectl get x   # start it, or: kubectl delete y")
    assert may_change_something("set the flag, then: kubectl taint nodes x")
    assert may_change_something("pileus manifests --cloud-provider=x | kubectl apply -f -")
    assert not may_change_something("kubectl --context=x get y   # then: pileus plan")
    assert not may_change_something("grant what this prints: pileus manifests --cloud-provider=x")


def marked() -> set[str]:
    """Returns the findings whose fix a test pastes; its fixture checks that it does."""
    tree = ast.parse((ROOT / "tests/real/test_doctor_fixes.py").read_text())
    calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call))
    marks = (one for one in calls if ast.unparse(one.func) == "pytest.mark.pastes")
    return {name for mark in marks for each in mark.args for name in constants(each)}


def test_every_fix_that_changes_something_is_pasted_into_a_cluster() -> None:
    found = [*fixes()]
    changing = {name for name, fix in found if may_change_something(fix)}

    assert len(found) > 45
    assert {"right-missing", "kubelet-flag-missing", "webhook-without-endpoints"} <= changing
    assert changing - TEXTS_AND_READS.keys() - marked() == set()
    assert TEXTS_AND_READS.keys() <= changing
    assert not TEXTS_AND_READS.keys() & marked()
