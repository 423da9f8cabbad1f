"""The two commands: `pileus`, and the drop-in `cloud-controller-manager`."""

import sys


def pileus() -> int:
    sys.stderr.write("pileus: no command yet\n")
    return 1


def cloud_controller_manager() -> int:
    sys.stderr.write("cloud-controller-manager: not yet\n")
    return 1
