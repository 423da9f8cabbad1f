"""Write docs/reference/local-cloud.md from the declarations and its text beside this file."""

from pathlib import Path

from tools.reference_page import write

from pileus_lab.cli.local_commands import COMMANDS
from pileus_lab.local.http_api import OPERATIONS
from pileus_lab.local.options import ANNOTATIONS, FILE

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "local-cloud.md"
TEXT = Path(__file__).with_suffix(".md")


def page() -> str:
    tables = {
        "FILE": FILE.reference(),
        "ANNOTATIONS": ANNOTATIONS.reference(),
        "COMMANDS": _commands(),
        "OPERATIONS": _operations(),
    }
    text = TEXT.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = text.replace(f"<!-- {name} -->\n", table)
    return text


def _commands() -> str:
    rows = (
        f"| `{noun} {verb}` | {command.usage.text} |\n"
        for noun, verbs in COMMANDS.items()
        for verb, command in verbs.items()
    )
    return "| command | what it does |\n|---|---|\n" + "".join(rows)


def _operations() -> str:
    return ", ".join(f"`{name}`" for name in sorted(OPERATIONS)) + ".\n"


if __name__ == "__main__":
    write(PAGE, page())
