"""Network namespaces: what `--network=netns` requires, and how namespaces are created and kept."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_network
from pathlib import Path
from typing import TypeVar

from pileus.cloud.errors import Misconfigured
from pileus_lab.local.model.records import Pools
from pileus_lab.local.model.state import State
from pileus_lab.local.netns.network import unreachable

T = TypeVar("T")

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
BATCH_TIMEOUT = 20.0
SBIN = "/usr/sbin:/sbin"
"""The path of `ip`, which the PATH of users often lacks."""

_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A new network namespace. The caller's own is never changed."""

    def __init__(self) -> None:
        """Raises `OSError` if the kernel or the privileges do not suffice."""
        self.descriptor: int = _in_thread(_made)

    def close(self) -> None:
        os.close(self.descriptor)

    def inside(self, work: Callable[[], T]) -> T:
        """Runs a function, such as creating a socket, in a thread inside the namespace."""

        def entered() -> T:
            _call("setns", self.descriptor, CLONE_NEWNET)
            return work()

        return _in_thread(entered)

    def configure(self, lines: Sequence[str], *, shown: Sequence[int] = ()) -> None:
        """Runs the lines with `ip -batch`, which inherits the `shown` descriptors.

        Raises `OSError` with the first error.
        """
        done = self.inside(
            lambda: subprocess.run(  # noqa: S603 -- lines are made of parsed addresses alone
                [ip_command() or "ip", "-batch", "-"],
                input="".join(f"{line}\n" for line in lines),
                capture_output=True,
                text=True,
                check=False,
                timeout=BATCH_TIMEOUT,
                pass_fds=tuple(shown),
                process_group=0,  # Ctrl-C is for the server alone
            )
        )
        if done.returncode:
            complaint = " ".join(done.stderr.split()) or f"status {done.returncode}"
            raise OSError(f"ip: {complaint} (of: {'; '.join(lines)})")

    def forward(self) -> None:
        """Enables forwarding of packets between links. Raises `OSError`."""
        self.inside(_forward)


def ip_command() -> str | None:
    return shutil.which("ip") or shutil.which("ip", path=SBIN)


def enter_user_namespace() -> None:
    """Becomes root of a new user namespace.

    Only a process with one thread can do it. Raises `OSError`.
    """
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", CLONE_NEWUSER)
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"0 {uid} 1")
    (own / "gid_map").write_text(f"0 {gid} 1")


def _made() -> int:
    _call("unshare", CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


def _forward() -> None:
    for name in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", name).write_text("1")


def _in_thread(work: Callable[[], T]) -> T:
    """A thread cannot leave the namespace that it entered, so it ends after its work."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(work).result()


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


INTERNAL_POOL, EXTERNAL_POOL = "10.77.0.0/16", "10.79.0.0/16"
"""These pools exist only in our namespaces, so they conflict with nothing of the user's."""

OTHERWISE = "--network=loopback needs none of this"
CAPABILITIES = (1 << 12) | (1 << 21)
"""CAP_NET_ADMIN and CAP_SYS_ADMIN."""


def pools_inside(given: Pools) -> Pools:
    """Returns the pools, with those of instances that can be used inside namespaces.

    Raises `Misconfigured` if the user chose loopback addresses for instances.
    """
    inside = Pools(
        internal=given.internal or INTERNAL_POOL,
        external=given.external or EXTERNAL_POOL,
        balancers=given.balancers,
    )
    for pool in map(ip_network, (inside.internal, inside.external)):
        if pool.is_loopback:
            raise Misconfigured(
                f"{pool} are loopback addresses, which no namespace can reach in another; "
                f"choose a pool such as {INTERNAL_POOL}, or --network=loopback"
            )
    return inside


def check_state(state: State) -> None:
    """Raises `Misconfigured` if instances were created for loopback."""
    if found := unreachable(state):
        raise Misconfigured(
            f"instance {found}, given by --network=loopback, which cannot be reached in a "
            "namespace; use --network=loopback or another state file"
        )


def claim_rights() -> None:
    """Checks that namespaces can be created; without root, enters a user namespace.

    Call it while the process has one thread. Raises `Misconfigured` with what is missing.
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
            "--network=netns needs permission to create network namespaces and veth links "
            f"({error}); {OTHERWISE}"
        ) from error


def has_rights(status: str) -> bool:
    """Whether a process with this /proc/PID/status may create and change namespaces."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(fields["CapEff"], 16) & CAPABILITIES == CAPABILITIES


def _try() -> None:
    trial = Namespace()
    try:
        trial.configure(["link add one type veth peer name other"])
        trial.forward()
    finally:
        trial.close()
