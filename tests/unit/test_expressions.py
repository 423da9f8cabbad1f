"""No regular expression comes from a user: one of 80 characters can match for hours."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLS = {"compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
EXCEPTIONS = {
    "src/pileus/runtime/settings.py": "form, one of two constants",
    "lab/src/pileus_lab/openstack/nova.py": "the model of Nova, whose filter is an expression",
}


def variable_expressions(source: str) -> Iterator[int]:
    """Returns the lines where an expression is neither a literal nor made of constants."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("re"), attr=name), args=[pattern, *_]
            ) if name in CALLS and not is_constant(pattern):
                yield node.lineno
            case ast.ImportFrom(module="re"):
                yield node.lineno
            case _:
                pass


def is_constant(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return True
        case ast.Name(name):
            return name.isupper()
        case ast.Attribute(attr="pattern", value=inner) | ast.FormattedValue(value=inner):
            return is_constant(inner)
        case ast.JoinedStr(values):
            return all(is_constant(each) for each in values)
        case ast.BinOp(left=left, right=right):
            return is_constant(left) and is_constant(right)
        case _:
            return False


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("re.compile(r'a+')", []),
        ("re.compile(rf'{KEY}={_VALUE.pattern}')", []),
        ("re.compile(text)", [1]),
        ("re.fullmatch(f'{prefix}.*', name)", [1]),
        ("x = 1\nre.sub(settings.pattern, '', name)", [2]),
        ("from re import compile", [1]),
    ],
)
def test_what_counts_as_a_variable_expression(source: str, lines: list[int]) -> None:
    assert list(variable_expressions(source)) == lines


def test_every_regular_expression_is_a_constant() -> None:
    files = [each for part in ("src", "lab", "examples") for each in (ROOT / part).rglob("*.py")]
    found = {
        str(path.relative_to(ROOT)): lines
        for path in files
        if (lines := list(variable_expressions(path.read_text(encoding="utf-8"))))
    }

    assert len(files) > 500
    assert found.keys() == EXCEPTIONS.keys()
