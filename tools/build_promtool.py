"""Build promtool, which checks and tests the alerting rules, once, into a cache.

Prints the path of the binary on standard output, and progress on standard error. Exits with 3 if
there is no Go, and with `--cached` also if it is not built yet. Takes some minutes on two cores.
"""

import sys

from tools.build_control_plane import NO_GO
from tools.go_program import GoProgram

PROGRAM = GoProgram(
    "promtool",
    "github.com/prometheus/prometheus/cmd/promtool",
    # Without service discovery of clouds, a fifth less to compile.
    ("-tags", "remove_all_sd", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"),
)


def main() -> int:
    if "--cached" in sys.argv[1:] and not PROGRAM.binary().exists():
        return NO_GO
    return PROGRAM.main()


if __name__ == "__main__":
    sys.exit(main())
