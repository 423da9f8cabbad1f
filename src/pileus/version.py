"""Which Pileus this is, and which Kubernetes it speaks for."""

import platform
import sys

PILEUS = "0.1.0"
KUBERNETES = "v1.37.1"
"""The release of the Go framework whose flags, metrics and events we keep."""
PROGRAM = "cloud-controller-manager"
"""The name that events, metrics, user agents and files know us by."""

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def system() -> str:
    """System and machine in Go's words, such as `linux/amd64`."""
    machine = platform.machine()
    return f"{sys.platform}/{_MACHINES.get(machine, machine)}"
