"""The version that the program reports: its own, or one given by `--version=vX.Y.Z-…`."""

import platform
import re

from pileus import version
from pileus.dataclass import dataclass
from pileus.settings.go_quote import quote
from pileus.settings.kinds import Kind, parse_bool, render_bool

_RELEASE = re.compile(r"v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)([-+][0-9A-Za-z.+-]*)?")


@dataclass(frozen=True, slots=True)
class VersionRequest:
    """What `--version` asks for: to print it (`true`, `raw`) or to report another (a version)."""

    word: str = "false"
    override: str = ""

    @property
    def reported(self) -> str:
        return self.override or version.KUBERNETES

    def answer(self) -> str | None:
        """Return the line to print before ending, if one was asked for."""
        if self.word == "raw":
            return _raw(self.reported)
        if self.word != "true":
            return None
        # Scripts take the second word, which the Go program prints too.
        return f"Kubernetes {self.reported} (Pileus {version.PILEUS}, commit {version.commit()})"


def _parse(text: str) -> VersionRequest:
    if text == "raw":
        return VersionRequest(text)
    if not text.startswith("v"):
        return VersionRequest(render_bool(parse_bool(text)))
    asked, ours = _RELEASE.fullmatch(text), _RELEASE.fullmatch(version.KUBERNETES)
    if asked is None:
        raise ValueError(f"invalid version {quote(text)}: expected vX.Y.Z with an optional suffix")
    if ours is None or asked.group(1, 2, 3) != ours.group(1, 2, 3):
        raise ValueError(
            f"version {quote(text)} must match major/minor/patch of default version "
            f"{quote(version.KUBERNETES)}"
        )
    return VersionRequest(override=text)


def _join(first: VersionRequest, more: VersionRequest) -> VersionRequest:
    return VersionRequest(more.word, more.override or first.override)


def _raw(reported: str) -> str:
    facts = {
        "GitVersion": reported,
        "GitCommit": version.commit(),
        "PileusVersion": version.PILEUS,
        "PythonVersion": platform.python_version(),
        "Compiler": platform.python_implementation(),
        "Platform": version.system(),
    }
    return "version.Info{" + ", ".join(f"{k}:{quote(v)}" for k, v in facts.items()) + "}"


VERSION: Kind[VersionRequest] = Kind(
    name="version",
    parse=_parse,
    render=lambda value: value.override or value.word,
    join=_join,
    bare="true",
)
