"""Run `python -m pileus`."""

import sys

from pileus.cli.main import pileus

if __name__ == "__main__":
    sys.exit(pileus())
