"""`pileus run`, also `cloud-controller-manager`: from the command line to a running manager.

Exit codes: 0 stopped · 1 wrong flags or files · 2 a bug · 255 the environment is not usable.
"""

import gc
import importlib
import traceback
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from pileus.app import help as help_text
from pileus.app import validate
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.settings import TABLE, CommandSettings, build_config
from pileus.cli.terminal import Terminal
from pileus.settings.config import Config
from pileus.settings.declare import build
from pileus.settings.flags import FlagError
from pileus.settings.sources import gather
from pileus.settings.values import Values
from pileus.telemetry.log import Log
from pileus.telemetry.logs import Verbosity, logging_to
from pileus.telemetry.mask import MASK, is_secret_name, masked
from pileus.telemetry.settings import LogSettings

LOG = Log(__name__)
FAILED, BUG, FATAL = 1, 2, 255

Start: TypeAlias = Callable[[Config, Verbosity], int]


def main(
    program: str, arguments: Sequence[str], terminal: Terminal, start: Start | None = None
) -> int:
    """Carry out the command. `start` runs the configured app until its end."""
    try:
        settings = gather(TABLE, program, arguments, terminal.environment)
    except FlagError as error:
        if error.usage:
            terminal.err.write(
                help_text.usage(program, TABLE, help_text.width_of(terminal.width(terminal.err)))
                + "\n"
            )
        return terminal.refuse(str(error), error.hint)
    values = settings.values
    command = build(CommandSettings, values)
    if command.help:
        terminal.out.write(
            help_text.full(program, TABLE, help_text.width_of(terminal.width(terminal.out)))
        )
        return 0
    if (answer := command.version.answer()) is not None:
        terminal.out.write(f"{answer}\n")
        return 0
    terminal.err.writelines(f"{note}\n" for note in settings.notes)
    return _run(values, terminal, start or _start)


def _run(values: Values, terminal: Terminal, start: Start) -> int:
    config = build_config(values)
    if unusable := validate.logging_problems(config):
        with logging_to(LogSettings(), terminal.out, terminal.err):
            return _failed(terminal, validate.together(unusable))
    with logging_to(config[LogSettings], terminal.out, terminal.err) as verbosity:
        _log_flags(values)
        if wrong := validate.problems(config):
            return _failed(terminal, validate.together(wrong))
        for message, fields in config.warnings():
            LOG.warning(message, **fields)
        return _guarded(lambda: start(config, verbosity), terminal)


def _guarded(run: Callable[[], int], terminal: Terminal) -> int:
    try:
        return run()
    except CommandFailed as error:
        return _failed(terminal, str(error))
    except Fatal as error:
        LOG.fatal(str(error))
        return FATAL
    except Exception:  # noqa: BLE001 -- the end of the program: a bug is printed in full, without secrets
        terminal.err.write(masked(traceback.format_exc()))
        return BUG


def _failed(terminal: Terminal, message: str) -> int:
    terminal.err.write(f"{masked(message)}\n")
    LOG.error("command failed", err=message)
    return FAILED


def _log_flags(values: Values) -> None:
    if not LOG.enabled(1):
        return
    for flag in sorted(TABLE, key=lambda one: one.name):
        value = MASK if is_secret_name(flag.name) else flag.kind.render(values[flag])
        LOG.info("FLAG", v=1, name=f"--{flag.name}", value=value, source=values.source(flag).value)


YOUNG = 10_000
"""Objects after which the garbage collector looks for cycles; 700 by default. The manager has few
cycles, and would spend a twelfth of its time on looking for them."""


def _start(config: Config, verbosity: Verbosity) -> int:
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    run = cast("Start", importlib.import_module("pileus.app.run").run)
    return run(config, verbosity)
