"""`pileus flexvolume CALL …`: the call-out of a FlexVolume driver, for nodes that still have it.

Prints one JSON object and nothing else. Exit code 0 for Success, 1 for all other answers. Flags
cannot be given: kubelet passes none. They come from a file, and from environment variables.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from pileus.app import help as help_text
from pileus.app import validate
from pileus.app.errors import CommandFailed
from pileus.app.settings import TABLE, build_config
from pileus.cli.terminal import Terminal
from pileus.flexvolume.calls import SIGNATURES
from pileus.flexvolume.run import answer
from pileus.settings.config import Config
from pileus.settings.flags import FlagError
from pileus.settings.sources import gather
from pileus.telemetry.logs import logging_to
from pileus.telemetry.settings import LogSettings

FILE = "/etc/pileus/flexvolume.yaml"
VARIABLE = "PILEUS_FLEXVOLUME_CONFIG"
MISSING = ". The file does not exist. Fix: create it, see pileus flexvolume --help"
TEXT = f"""Answer a call of a FlexVolume driver with one JSON object.

kubelet and kube-controller-manager run it as VENDOR~DRIVER/DRIVER, such as pileus.dev~local/local.

Calls that need the cloud read the manager's flags from {FILE}
(or ${VARIABLE}) and from variables PILEUS_<FLAG_NAME>.
They need cloud-provider, cloud-config and kubeconfig."""


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    if arguments and arguments[0] in {"-h", "--help"}:
        terminal.out.write(_help(program, terminal))
        return 0
    # kubelet parses both streams as one JSON object: there is no place for a log.
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        logging_to(LogSettings(), nowhere, nowhere),
    ):
        found = answer(arguments, lambda: _config(program, terminal))
    terminal.out.write(f"{found.render()}\n")
    return found.exit_code


def _config(program: str, terminal: Terminal) -> Config:
    """Raises CommandFailed."""
    path = terminal.environment.get(VARIABLE, "") or FILE
    exists = Path(path).exists()
    given = [f"--config={path}"] if exists else []
    try:
        config = build_config(gather(TABLE, program, given, terminal.environment).values)
    except FlagError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise CommandFailed(f"{error}{hint}") from error
    if wrong := validate.problems(config):
        raise CommandFailed(f"{path}: {validate.together(wrong)}{'' if exists else MISSING}")
    return config


def _help(program: str, terminal: Terminal) -> str:
    width = help_text.width_of(terminal.width(terminal.out))
    calls = "".join(f"  {' '.join((name, *names))}\n" for name, names in SIGNATURES.items())
    usage = f"Usage:\n  {program} CALL [ARGUMENTS]\n\nCalls:\n\n{calls}"
    flags = "\nFlags:\n\n  -h, --help   Print this text and exit.\n"
    return f"{help_text.wrapped(TEXT, width)}\n{usage}{flags}"
