"""The two commands: `pileus`, and the drop-in `cloud-controller-manager`.

A subcommand is a module with `main(program, arguments, terminal) -> int`, and one line below. Those
of the laboratory, a separate distribution, are found by entry points (group `pileus.commands`).
Modules are imported when they are needed, so that each command starts quickly.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from pileus.cli.terminal import Terminal, is_unwritable, own_terminal, whole
from pileus.entry_points import entry_points
from pileus.suggest import closest
from pileus.version import INSTALL_LAB, installing

Main: TypeAlias = Callable[[str, Sequence[str], Terminal], int]

COMMANDS = {
    "run": "run the manager, like the command cloud-controller-manager",
    "plan": "print what the manager would change; changes nothing",
    "explain": "explain the state of an object and what to do next",
    "history": "print the decisions of the running manager about an object",
    "top": "watch nodes, Services and decisions of the running manager",
    "orphans": "list or delete load balancers whose Service no longer exists",
    "csi": "serve a CSI driver for the volumes of a cloud",
    "manifests": "print the objects that install the manager, for kubectl apply",
    "doctor": "check a cluster and its cloud; each finding has a reason and a fix",
    "flexvolume": "answer a call of a FlexVolume driver",
    "providers": "list the installed cloud providers",
    "completion": "print a script that completes commands and flags in a shell",
    "man": "print a manual page",
    "version": "print the version, the commit and the Kubernetes version",
}
LAB_COMMANDS = {
    "apiserver": "serve an embedded Kubernetes API for trials and tests",
    "demo": "run a cluster, a cloud and the manager on this machine",
    "local": "run and operate a cloud on this machine",
    "simulate": "test the manager under injected faults, in virtual time",
}
"""Commands of the distribution pileus-lab."""
GROUP = "pileus.commands"
"""The entry points by which the laboratory offers its commands."""

ARGUMENTS = "<command> [flags]"


def pileus() -> int:
    arguments = sys.argv[1:]
    if is_flexvolume(sys.argv[0]):
        arguments = ["flexvolume", *arguments]
    return _ending_quietly(lambda: dispatch(arguments, own_terminal()))


def is_flexvolume(path: str) -> bool:
    """Whether the program was started as a FlexVolume driver: `…/VENDOR~DRIVER/DRIVER`."""
    *_, folder, name = ("", "", *path.split("/"))
    return bool(name) and "~" in folder and folder.partition("~")[2] == name


def kubectl_pileus() -> int:
    """The kubectl plugin: `kubectl pileus …`."""
    return _ending_quietly(lambda: dispatch(sys.argv[1:], own_terminal(), "kubectl pileus"))


def cloud_controller_manager() -> int:
    return _ending_quietly(
        lambda: _command("run")("cloud-controller-manager", sys.argv[1:], own_terminal())
    )


def dispatch(arguments: Sequence[str], terminal: Terminal, program: str = "pileus") -> int:
    """Carry out `pileus <command> ...` and return its exit code."""
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    if name == "help" and rest:
        return dispatch([*rest, "--help"], terminal, program)
    if name in {"-h", "--help", "help"}:
        terminal.out.write(_usage(program))
        return 0
    if name == "--version":
        name = "version"
    if name in COMMANDS:
        return _command(name)(f"{program} {name}", rest, terminal)
    if name in LAB_COMMANDS:
        return _lab_command(name, rest, terminal)
    if not name:
        terminal.err.write(_usage(program) + "\n")
        return terminal.refuse("missing command")
    what = "flag" if name.startswith("-") else "command"
    known = (*COMMANDS, *LAB_COMMANDS)
    meant = closest(name, known)
    hint = f"did you mean {program} {meant}?" if meant else f"known: {', '.join(known)}"
    message = f'unknown {what} "{name}" for "{program}"'
    return terminal.misused(program, f"{program} {ARGUMENTS}", message, hint)


def _command(name: str) -> Main:
    return cast("Main", importlib.import_module(f"pileus.cli.{name}").main)


def _lab_command(name: str, arguments: Sequence[str], terminal: Terminal) -> int:
    found = next((each for each in entry_points(GROUP) if each.name == name), None)
    if found is None:
        message = f"pileus {name} is a command of the laboratory, which is not installed"
        return terminal.refuse(message, f"Fix: {INSTALL_LAB}")
    try:
        main = cast("Main", found.load())
    except ImportError as error:
        message = f"pileus {name}: the laboratory cannot be loaded: {error}"
        return terminal.refuse(message, f"Fix: {installing('lab', again=True)}")
    return main(f"pileus {name}", arguments, terminal)


def _usage(program: str) -> str:
    installed = {each.name for each in entry_points(GROUP)}
    shown = COMMANDS | {name: LAB_COMMANDS[name] for name in LAB_COMMANDS if name in installed}
    missing = [name for name in LAB_COMMANDS if name not in installed]
    lines = "".join(f"  {name:<12}{text}\n" for name, text in shown.items())
    more = f"Not installed: {', '.join(missing)}. Add them with: {INSTALL_LAB}\n"
    return (
        "A Kubernetes cloud-controller-manager with plan, explain and orphan clean-up.\n\n"
        f"Usage:\n  {program} {ARGUMENTS}\n\nCommands:\n\n{lines}\n"
        f"{more if missing else ''}"
        f'Run "{program} <command> --help" for more information about a command.\n'
    )


def _ending_quietly(command: Callable[[], int]) -> int:
    """Run a command without a traceback if its pipe is closed (`| head`) or on Ctrl-C."""
    if sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__:
        sys.stdout, sys.stderr = whole(sys.stdout), whole(sys.stderr)
    code = 0
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code or 1
    except OSError as error:
        if not is_unwritable(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"Error: the output cannot be written: {error.strerror}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return code
