"""The two commands: `pileus`, and the drop-in `cloud-controller-manager`.

A subcommand is a module with `main(program, arguments, terminal) -> int`, and one line below.
Modules are imported when they are needed, so that each command starts quickly.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from pileus.cli.terminal import Terminal, own_terminal, whole
from pileus.suggest import closest

Main: TypeAlias = Callable[[str, Sequence[str], Terminal], int]

COMMANDS = {
    "run": "run the manager, as the command cloud-controller-manager does",
    "plan": "print what the manager would change now; changes nothing",
    "explain": "tell the story of a node or Service: wanted, seen, awaited, what to do",
    "orphans": "list, and delete if told to, load balancers that no Service has any more",
    "apiserver": "serve an embedded Kubernetes API, for trying and testing",
    "demo": "show the whole thing on this machine: a cluster, a cloud, the manager",
    "providers": "list the cloud providers that are installed",
    "local": "a whole cloud on this machine: serve it, show it, change it",
    "simulate": "run the manager under schedules of faults, in virtual time",
    "version": "print the versions of Pileus and of the Kubernetes it speaks for",
}


def pileus() -> int:
    return _ending_quietly(lambda: dispatch(sys.argv[1:], own_terminal()))


def cloud_controller_manager() -> int:
    return _ending_quietly(
        lambda: _command("run")("cloud-controller-manager", sys.argv[1:], own_terminal())
    )


def dispatch(arguments: Sequence[str], terminal: Terminal) -> int:
    """Carry out `pileus <command> ...` and return its exit code."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    if name in {"-h", "--help", "help"}:
        terminal.out.write(_usage())
        return 0
    if name == "--version":
        name = "version"
    if name in COMMANDS:
        return _command(name)(f"pileus {name}", rest, terminal)
    terminal.err.write(_usage() + "\n")
    if not name:
        return terminal.refuse("a command is needed")
    meant = closest(name, COMMANDS)
    hint = f"did you mean pileus {meant}?" if meant else ""
    return terminal.refuse(f'unknown command "{name}" for "pileus"', hint)


def _command(name: str) -> Main:
    return cast("Main", importlib.import_module(f"pileus.cli.{name}").main)


def _usage() -> str:
    lines = "".join(f"  {name:<12}{text}\n" for name, text in COMMANDS.items())
    return (
        "Pileus does for a Kubernetes cluster what depends on its cloud.\n\n"
        f"Usage:\n  pileus <command> [flags]\n\nCommands:\n{lines}\n"
        "`pileus <command> --help` says more about one.\n"
    )


def _ending_quietly(command: Callable[[], int]) -> int:
    """Run a command whose reader may go away (`| head`) and whose user may press Ctrl-C."""
    if sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__:
        sys.stdout, sys.stderr = whole(sys.stdout), whole(sys.stderr)
    code = 0
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or 1
    except KeyboardInterrupt:
        return 130
    return code
