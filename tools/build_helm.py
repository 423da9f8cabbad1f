"""Build helm, which renders and checks the chart in tests, once, into a cache.

Prints the path of the binary on standard output, and progress on standard error. Exits with 3 if
there is no Go. Takes some minutes on two cores; a second run costs nothing.
"""

import sys

from tools.go_program import GoProgram

PROGRAM = GoProgram("helm", "helm.sh/helm/v4/cmd/helm")

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
