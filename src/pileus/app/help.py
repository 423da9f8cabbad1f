"""The text of `--help`: flags in groups, wrapped to the width of the terminal."""

import textwrap
from collections.abc import Iterator

from pileus.app.flags import AnyFlag, Group, Table
from pileus.app.kinds import STRING

ABOUT = """\
The cloud controller manager does for a Kubernetes cluster what depends on its
cloud: it knows the machines behind the nodes, keeps load balancers and routes.
"""
_GAP = 3
_NARROWEST = 40
_HANGING = 10


def usage(program: str, table: Table, columns: int) -> str:
    """Return the list of all flags. `columns` 0: lines are as long as they are."""
    sections = (section(group, columns) for group in table.groups)
    return f"Usage:\n  {program} [flags]\n" + "".join(sections)


def full(program: str, table: Table, columns: int) -> str:
    return f"{ABOUT}\n{usage(program, table, columns)}"


def section(group: Group, columns: int) -> str:
    """The flags of one group, under its title."""
    shown = sorted((flag for flag in group.flags if not flag.deprecated), key=lambda f: f.name)
    heads = [_head(flag) for flag in shown]
    indent = max(map(len, heads)) + _GAP
    if columns and columns - indent < _NARROWEST:
        indent = _HANGING
    lines = [
        line
        for head, flag in zip(heads, shown, strict=True)
        for line in _entry(head, described(flag), indent, columns)
    ]
    return f"\n{group.title} flags:\n\n" + "".join(f"{line}\n" for line in lines)


def _head(flag: AnyFlag) -> str:
    short = f"  -{flag.short}, " if flag.short else " " * 6
    bare = flag.kind.bare
    word = flag.kind.word + (f"[={bare}]" if bare and flag.kind.word else "")
    return f"{short}--{flag.name} {word}".rstrip()


def described(flag: AnyFlag) -> str:
    """The help text with the default, where there is one to mention."""
    default = flag.shown_default()
    if default in {"", "0", "0s", "false", "[]"}:
        return flag.help
    shown = f'"{default}"' if flag.kind is STRING else default
    first, *rest = flag.help.split("\n")
    return "\n".join((f"{first} (default {shown})", *rest))


def _entry(head: str, text: str, indent: int, columns: int) -> Iterator[str]:
    lines = [wrapped for line in text.split("\n") for wrapped in _wrap(line, indent, columns)]
    if len(head) + _GAP > indent:
        yield head
    else:
        yield head.ljust(indent) + lines.pop(0)
    yield from (" " * indent + line for line in lines)


def _wrap(line: str, indent: int, columns: int) -> list[str]:
    if not columns:
        return [line]
    width = max(columns - indent, _NARROWEST)
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
