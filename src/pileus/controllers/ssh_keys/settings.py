"""Settings of the SSH key controller."""

from dataclasses import dataclass

from pileus.controllers.ssh_keys.location import BadLocation, Location, located
from pileus.settings.declare import converted
from pileus.settings.kinds import STRING


def _read(name: str, text: str) -> Location | None:
    try:
        return located(text) if text else None
    except BadLocation as error:
        raise ValueError(f"--{name}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKeysSettings:
    """Where the SSH keys of all instances come from."""

    source: Location | None = converted(
        _read,
        "ssh-keys-from",
        STRING,
        "",
        "Source of the instances' SSH keys: configmap:NAMESPACE/NAME, secret:NAMESPACE/NAME "
        "or file:PATH; empty: not managed.",
        section="Pileus: SSH keys",
    )
    """None: SSH keys are not managed."""
