"""Build csi-sanity, the conformance test of CSI drivers, once, into a cache.

Prints the path of the binary on standard output, and progress on standard error. Exits with 3 if
there is no Go, and with `--cached` also if it is not built yet. Takes a minute or two on two cores.
"""

import sys

from tools.build_control_plane import NO_GO
from tools.go_program import GoProgram

PROGRAM = GoProgram("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")


def main() -> int:
    if "--cached" in sys.argv[1:] and not PROGRAM.binary().exists():
        return NO_GO
    return PROGRAM.main()


if __name__ == "__main__":
    sys.exit(main())
