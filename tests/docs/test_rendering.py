"""Every page, rendered by a Markdown parser, shows commands, queries and flags as code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    pytest.param(page, id=str(page.relative_to(ROOT)))
    for page in sorted((
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "lab").glob("*.md"),
        *(ROOT / "examples").glob("*/*.md"),
    ))
]
PARSER = MarkdownIt("commonmark").enable("table")
COMMAND = re.compile(
    r"^\s*(?:\$ )?(?:kubectl (?:--|(?!completes )[a-z])"
    r"|(?:pileus|helm|curl|pip|docker|podman|export|jq|systemctl|journalctl|openstack|ctr|grep|tail"
    r"|sudo|timedatectl) \S)"
    r"|(?<![\w-])--[a-z][a-z-]+"
    r"|\b(?:sum|max|min|rate|increase|histogram_quantile)(?: by)? ?\([a-z_{]"
)
"""A command line, a flag, or a query of Prometheus."""


def prose_of(page: str) -> Iterator[tuple[int, str]]:
    """Yields each line of text that is shown as prose, with the line of its paragraph.

    Headings are left out: they name commands and flags.
    """
    before = ""
    for token in PARSER.parse(page):
        opened, before = before, token.type
        if token.type == "inline" and opened != "heading_open":
            line = token.map[0] + 1 if token.map else 0
            yield from ((line, text) for text in _lines(token.children or []))


def _lines(children: list[Token]) -> list[str]:
    """Code within a line is left out: it is not prose."""
    text = "".join(
        "\n"
        if one.type in {"softbreak", "hardbreak"}
        else one.content
        if one.type == "text"
        else ""
        for one in children
    )
    return text.split("\n")


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_rendered_as_code(page: Path):
    shown = [(line, text) for line, text in prose_of(page.read_text()) if COMMAND.search(text)]

    assert shown == [], f"{page.name}: these lines are rendered as prose"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("## See\n\nkubectl get pods\n    kubectl get nodes\n", id="without a fence"),
        pytest.param("Run it:\n$ pileus plan\n", id="within a paragraph"),
        pytest.param("## Fix\n\nkubectl --namespace=a rollout restart x\n", id="another verb"),
        pytest.param("- first\n  grep x manager.log\n", id="another program"),
        pytest.param("sum by (code) (rate(requests_total[5m]))\n", id="a query"),
        pytest.param("| a |\n|---|\n| give --master=URL |\n", id="in a table"),
    ],
)
def test_a_command_in_prose_is_found(page: str):
    assert any(COMMAND.search(text) for _, text in prose_of(page))
