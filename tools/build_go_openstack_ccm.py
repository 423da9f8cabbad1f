"""Build the Go OpenStack cloud-controller-manager that Pileus is compared with, once, into a cache.

Prints the path of the binary on standard output, and progress on standard error. Exits with 3 if
there is no Go. Takes about five minutes on two cores; a second run costs nothing.
"""

import sys

from tools.go_program import GoProgram

VERSION = "v1.36.0"
PROGRAM = GoProgram(
    "go-openstack-ccm",
    "k8s.io/cloud-provider-openstack/cmd/openstack-cloud-controller-manager",
    (
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        f"-s -w -X k8s.io/component-base/version.gitVersion={VERSION}",
    ),
)

if __name__ == "__main__":
    sys.exit(PROGRAM.main())
