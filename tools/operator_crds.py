"""Print the folder with the CustomResourceDefinitions of the Prometheus operator, for the tests.

They come from the operator's Go module, at a pinned version and hash. Exits with 3 if that cannot
be had.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.build_control_plane import NO_GO, cache_folder, find_go

MODULE = Path(__file__).resolve().parent / "prometheus-operator"
PATH = "github.com/prometheus-operator/prometheus-operator"
FOLDER = Path("example", "prometheus-operator-crd")


def folder() -> Path | None:
    """Returns the folder; None if there is no Go, or the module cannot be downloaded."""
    go = find_go(cache_folder())
    if go is None:
        return None
    done = subprocess.run(
        [str(go), "mod", "download", "-json", PATH],
        cwd=MODULE,
        env=os.environ | {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Path(json.loads(done.stdout)["Dir"]) / FOLDER if done.returncode == 0 else None


def main() -> int:
    found = folder()
    if found is None:
        print("prometheus operator: the module cannot be downloaded", file=sys.stderr)
        return NO_GO
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
