"""What `--network=netns` needs before the cloud starts: rights, tools, addresses."""

from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

from pileus.cloud.errors import Misconfigured
from pileus_lab.local.model.state import Settings, State
from pileus_lab.local.netns.namespace import Namespace, enter_user_namespace, ip_command
from pileus_lab.local.netns.network import unreachable

INTERNAL_POOL, EXTERNAL_POOL = "10.77.0.0/16", "10.79.0.0/16"
"""Exist in our namespaces alone, so nothing of the user's can clash with them."""

OTHERWISE = "--network=loopback needs none of this"
CAPABILITIES = (1 << 12) | (1 << 21)
"""CAP_NET_ADMIN and CAP_SYS_ADMIN."""


def settings_inside(settings: Settings) -> Settings:
    """The settings with pools that can be used inside namespaces.

    Errors: `Misconfigured` if the user chose loopback addresses for instances.
    """
    default = Settings()
    inside = replace(
        settings,
        internal_pool=_pool(settings.internal_pool, default.internal_pool, INTERNAL_POOL),
        external_pool=_pool(settings.external_pool, default.external_pool, EXTERNAL_POOL),
    )
    for pool in map(ip_network, (inside.internal_pool, inside.external_pool)):
        if pool.is_loopback:
            raise Misconfigured(
                f"{pool} are loopback addresses, which no namespace can reach in another; "
                f"choose a pool such as {INTERNAL_POOL}, or --network=loopback"
            )
    return inside


def _pool(chosen: str, default: str, inside: str) -> str:
    return inside if chosen == default else chosen


def check_state(state: State) -> None:
    """Errors: `Misconfigured` if instances were made for loopback."""
    if found := unreachable(state):
        raise Misconfigured(
            f"instance {found}, given by --network=loopback, which cannot be reached in a "
            "namespace; go on with --network=loopback, or name another state file"
        )


def claim_rights() -> None:
    """Make sure that namespaces can be made; without root, in a user namespace.

    To be called while the process has one thread.
    Errors: `Misconfigured` that says what is missing.
    """
    if not ip_command():
        raise Misconfigured(f"--network=netns needs the command `ip` (iproute2); {OTHERWISE}")
    if not Path("/proc/net/if_inet6").exists():
        raise Misconfigured(f"--network=netns needs IPv6 in the kernel; {OTHERWISE}")
    try:
        if not has_rights(Path("/proc/self/status").read_text(encoding="ascii")):
            enter_user_namespace()
    except OSError as error:
        raise Misconfigured(
            f"--network=netns needs root, or user namespaces ({error}); {OTHERWISE}"
        ) from error
    try:
        _try()
    except OSError as error:
        raise Misconfigured(
            "--network=netns needs the right to make network namespaces and veth links "
            f"({error}); {OTHERWISE}"
        ) from error


def has_rights(status: str) -> bool:
    """Whether a process with this /proc/PID/status may make and change namespaces."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(fields["CapEff"], 16) & CAPABILITIES == CAPABILITIES


def _try() -> None:
    trial = Namespace()
    try:
        trial.configure(["link add one type veth peer name other"])
        trial.forward()
    finally:
        trial.close()
