"""Print the folder of the Helm chart and manifests of the Go OpenStack manager, for the tests.

They are files of the Go module that tools/go-openstack-ccm pins; its go.sum vouches for them. The
chart is `charts/openstack-cloud-controller-manager` in that folder, the manifests are in
`manifests/controller-manager`. Exits with 3 if there is no Go.
"""

import json
import os
import subprocess
import sys

from tools.build_control_plane import NO_GO, cache_folder, find_go
from tools.go_program import SETTINGS, TOOLS

MODULE = "k8s.io/cloud-provider-openstack"


def main() -> int:
    go = find_go(cache_folder())
    if go is None:
        return NO_GO
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=TOOLS / "go-openstack-ccm",
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{MODULE} cannot be downloaded: {done.stdout}{done.stderr}")
    print(json.loads(done.stdout)["Dir"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
