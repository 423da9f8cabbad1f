"""`pileus demo`: run a cluster, a cloud and the manager on this machine."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pileus.cli.arguments import Argument, Help, Usage, UsageError, answered, parse
from pileus.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console

USAGE = Usage(
    "Start an API server, a cloud, its instances and the manager in one process, and show how "
    "nodes are initialized, traffic is balanced and a lost instance is replaced. Needs no "
    "cluster, cloud account, root, Docker or Go, and leaves nothing behind.",
    (
        Argument(
            name="--once",
            text="Run once without a terminal, check each step, and exit with 0 if all succeed.",
            kind=bool,
        ),
        Argument(
            name="--state-dir",
            text="New or empty folder for kubeconfig, socket and log; default: a temporary folder.",
        ),
    ),
)


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    try:
        given = parse(program, USAGE, arguments)
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    terminal.out.write("Pileus demo: starting a cluster, a cloud and the manager ...\n")
    terminal.out.flush()
    # They take a second to load: the first words come before.
    from pileus_lab.demo.host import Unusable  # noqa: PLC0415
    from pileus_lab.demo.run import Options, show  # noqa: PLC0415

    folder = given.text("state-dir")
    options = Options(
        once=given.is_set("once"),
        folder=Path(folder) if folder else None,
        out=terminal.out,
        console=None if given.is_set("once") else _console(terminal),
        program=typed(sys.argv[0]),
    )
    try:
        return show(options)
    except Unusable as error:
        return terminal.refuse(str(error))


def typed(path: str) -> str:
    """Returns the command that runs Pileus as the demo was started, for a shell."""
    if Path(path).name == "__main__.py":  # python -m pileus
        return f"{shlex.quote(sys.executable)} -m pileus"
    return shlex.quote(path)


def _console(terminal: Terminal) -> "Console | None":
    """A console to draw on, if the terminal has one."""
    if not terminal.width(terminal.out):
        return None
    from rich.console import Console  # noqa: PLC0415 -- imported only by commands that draw

    no_color = bool(terminal.environment.get("NO_COLOR"))
    console = Console(file=terminal.out, no_color=no_color, highlight=False)
    return console if console.encoding == "utf-8" and not console.is_dumb_terminal else None
