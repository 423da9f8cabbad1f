"""Network namespaces without names: they last as long as somebody holds their descriptor.

Even a killed process leaves none behind: the kernel removes what nobody holds.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
BATCH_TIMEOUT = 20.0
SBIN = "/usr/sbin:/sbin"
"""Where `ip` is, though users' PATH often lacks it."""

_libc = ctypes.CDLL(None, use_errno=True)


class Namespace:
    """A network namespace of our own. The caller's is never changed nor left."""

    def __init__(self) -> None:
        """Errors: `OSError` if the kernel or the rights do not suffice."""
        self.descriptor: int = _in_thread(_made)

    def close(self) -> None:
        os.close(self.descriptor)

    def inside(self, work: Callable[[], T]) -> T:
        """Do some work, such as making a socket, in a thread that has entered the namespace."""

        def entered() -> T:
            _call("setns", self.descriptor, CLONE_NEWNET)
            return work()

        return _in_thread(entered)

    def configure(self, lines: Sequence[str], *, shown: Sequence[int] = ()) -> None:
        """Run the lines by `ip -batch`, which sees the `shown` descriptors too.

        Errors: `OSError` with the first complaint.
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
        """Let it carry packets from one link to another. Errors: `OSError`."""
        self.inside(_forward)


def ip_command() -> str | None:
    return shutil.which("ip") or shutil.which("ip", path=SBIN)


def enter_user_namespace() -> None:
    """Become root of a user namespace: what it makes may be changed, and nothing else.

    Only a process with one thread can. Errors: `OSError`.
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
    """Namespaces are entered by a thread, never to be left by it: so it ends with its work."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(work).result()


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
