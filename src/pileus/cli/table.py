"""Tables: drawn for a terminal, plain columns for everything else."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from pileus.cli.terminal import Terminal


def show_table(terminal: Terminal, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write the rows. What is not a terminal gets every character; a terminal, what fits."""
    width = terminal.width(terminal.out)
    if not width:
        terminal.out.write(_plain(columns, rows))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, no_wrap=index == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    no_color = bool(terminal.environment.get("NO_COLOR"))
    console = Console(file=terminal.out, width=width, no_color=no_color, highlight=False)
    console.print(table)


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[column.upper() for column in columns], *rows]
    wide = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "".join(
        "   ".join(cell.ljust(wide[i]) for i, cell in enumerate(line)).rstrip() + "\n"
        for line in lines
    )
