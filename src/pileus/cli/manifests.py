"""`pileus manifests`: prints the objects that install the manager, for `kubectl apply -f -`."""

from collections.abc import Sequence
from pathlib import Path

from pileus.app import help as help_text
from pileus.app.settings import TABLE, CommandSettings
from pileus.cli.terminal import Terminal, printable
from pileus.cloud.choice import CloudSettings
from pileus.deployment.choice import InvalidChoice
from pileus.deployment.commented import documents
from pileus.deployment.flags import OUTPUT, OWN, chosen
from pileus.deployment.manifests import objects
from pileus.deployment.systemd import unit
from pileus.settings.declare import flag_of
from pileus.settings.flags import FlagError, Group, Table
from pileus.settings.sources import gather
from pileus.telemetry.mask import masked

TEXT = """Print the objects that install the manager, for `kubectl apply -f -`.

Rights are those that the enabled controllers use. The file of --cloud-config becomes a Secret."""
CLOSING = "All flags of the manager are accepted and given to the container (pileus run --help)."
HELP = flag_of(CommandSettings, "help")
PROVIDER = flag_of(CloudSettings, "provider")
FILE = flag_of(CloudSettings, "config_file")


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    usage = f"{program} --cloud-provider=NAME [flags]"
    table = Table((OWN, *TABLE.groups))
    try:
        settings = gather(table, program, arguments, terminal.environment)
    except FlagError as error:
        return terminal.misused(program, usage, str(error), error.hint)
    if settings.values[HELP]:
        terminal.out.write(_help(usage, terminal))
        return 0
    terminal.err.writelines(f"{note}\n" for note in settings.notes)
    try:
        choice = chosen(settings.values, lambda path: Path(path).read_bytes())
    except InvalidChoice as error:
        return terminal.refuse(masked(str(error)))
    for warning in choice.warnings:
        terminal.err.write(f"Warning: {printable(masked(warning))}\n")
    is_unit = settings.values[OUTPUT] == "systemd"
    terminal.out.write(unit(choice) if is_unit else documents(objects(choice)))
    return 0


def _help(usage: str, terminal: Terminal) -> str:
    shown = Group("", (*OWN.flags, PROVIDER, FILE, HELP))
    width = help_text.width_of(terminal.width(terminal.out))
    return (
        f"{help_text.wrapped(TEXT, width)}\nUsage:\n  {usage}\n"
        f"{help_text.section(shown, width)}\n{help_text.wrapped(CLOSING, width)}"
    )
