"""Build actionlint, which checks the workflows in .github, once, into a cache (half a minute).

Prints the path of the binary on standard output. Exits with 3 if there is no Go.
"""

import sys

from tools.go_program import GoProgram

PROGRAM = GoProgram("actionlint", "github.com/rhysd/actionlint/cmd/actionlint")

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
