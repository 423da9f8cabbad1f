"""The build of this process, as `/version` and `kubernetes_build_info` report it."""

import platform
import sys

import msgspec

from pileus.version import KUBERNETES, PILEUS, commit, system


class Build(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    major: str
    minor: str
    git_version: str
    git_commit: str = ""
    git_tree_state: str = ""
    build_date: str = ""
    go_version: str = ""
    compiler: str
    platform: str


def this_build() -> Build:
    """Returns the build: the Kubernetes release, with the version of Pileus after a plus sign."""
    major, minor, _ = KUBERNETES.removeprefix("v").split(".", 2)
    return Build(
        major=major,
        minor=minor,
        git_version=f"{KUBERNETES}+pileus.{PILEUS}",
        git_commit=commit(),
        compiler=f"{sys.implementation.name} {platform.python_version()}",
        platform=system(),
    )
