"""Commands that the product prints: users paste them, whatever namespace their context has."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pileus

SOURCE = Path(pileus.__file__).parent
COMMAND = re.compile(r"kubectl (.*?)(?= && | \| |   # |; |\. |`|$)", re.DOTALL)
NAMESPACED = re.compile(
    r"^(?:--\S+ )*(?:"
    r"logs\b|port-forward .|create (?:token|secret|configmap|serviceaccount|rolebinding)\b|"
    r"(?:annotate|delete|describe|edit|get|label|patch) (?:--\S+ )*"
    r"(?:(?:service|pod|lease|secret|configmap|serviceaccount|event|deployment|daemonset|endpoints?"
    r"|pvc|persistentvolumeclaim|volumesnapshot|rolebinding|role)s?)(?:[, ]|$))"
)
NAMED = re.compile(r"--namespace\b|(?:^| )-n |--all-namespaces\b|(?:^| )-A\b| -f -")


def text_of(node: ast.AST) -> str:
    """Returns a text with `…` for what is only known when the program runs."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(one) for one in node.values)
    return "…"


def texts(tree: ast.AST) -> Iterator[str]:
    """Yields every text but docstrings and comments."""
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(node.values)
        if isinstance(node, ast.Expr):
            inner.add(node.value)
        if node not in inner and isinstance(node, ast.Constant | ast.JoinedStr):
            yield text_of(node)


def without_namespace(text: str) -> list[str]:
    """Returns the commands about objects of a namespace that do not name it."""
    found = (one[1] for one in COMMAND.finditer(text))
    return [one for one in found if NAMESPACED.search(one) and not NAMED.search(one)]


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("Fix: kubectl annotate service NAME x-", True),
        ("Fix: kubectl annotate service NAME x- --namespace=shop", False),
        ("kubectl --namespace=a get pods   # then: kubectl logs POD --previous", True),
        ("kubectl get pods --all-namespaces", False),
        ("kubectl create token NAME > FILE", True),
        ("kubectl delete pvc -n … …", False),
        ("kubectl --context=x get lease …", True),
        ("kubectl get nodes --output=wide", False),
        ("kubectl patch pv … -p x", False),
        ("kubectl get leases", True),
    ],
)
def test_a_command_without_its_namespace_is_found(text: str, is_wrong: bool):
    assert bool(without_namespace(text)) is is_wrong


PAGE = ("server/page/page.html", "server/page/page.js")
SHOWN = re.compile(r"<code>(.*?)</code>|\"(.*?)\"|`(.*?)`")
"""Code in HTML, and texts of JavaScript."""


def printed() -> Iterator[tuple[str, str]]:
    """Yields each text that the product prints, with its file."""
    for path in SOURCE.rglob("*.py"):
        for text in texts(ast.parse(path.read_text(encoding="utf-8"))):
            yield str(path.relative_to(SOURCE)), text
    for name in PAGE:
        for found in SHOWN.finditer((SOURCE / name).read_text(encoding="utf-8")):
            yield name, next(filter(None, found.groups()), "")


def test_every_printed_command_names_the_namespace_of_its_object():
    all_texts = [*printed()]
    found = {f"{name}: {each}" for name, text in all_texts for each in without_namespace(text)}
    counts = Counter(name for name, text in all_texts if COMMAND.search(text))

    assert counts.total() > 30, "the commands are not found any more"
    assert all(counts[name] == 1 for name in PAGE)
    assert found == set()


BUILDER = "doctor/installation.py"
"""Builds the command from the flags of the installation."""
RUNBOOKS = SOURCE.parents[1] / "docs" / "runbooks"


def test_no_message_or_runbook_prints_manifests_without_the_flags_of_the_installation():
    """Applied, they would remove the flags of the user; `pileus doctor` knows them."""
    found = {name for name, text in printed() if "pileus manifests" in text}
    pages = {page.name for page in RUNBOOKS.glob("*.md") if "pileus manifests" in page.read_text()}

    assert found == {BUILDER}
    assert pages == set()
