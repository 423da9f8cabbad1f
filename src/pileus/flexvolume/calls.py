"""The calls of FlexVolume: their arguments, their answers, and what the options of a volume mean.

Standard output and standard error together have to be one JSON object: kubelet parses both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import msgspec

from pileus.cloud.volume import VolumeId
from pileus.suggest import did_you_mean
from pileus.volumes.parameters import read_filesystem
from pileus.volumes.persistent_volumes import FLEX_OPTION

SUCCESS, FAILURE, NOT_SUPPORTED = "Success", "Failure", "Not supported"
FILESYSTEM, ACCESS = "kubernetes.io/fsType", "kubernetes.io/readwrite"
NAME = "kubernetes.io/pvOrVolumeName"
"""Set by Kubernetes: name of the PersistentVolume, or of a volume of a pod. The API server refuses
options of users with this prefix."""
CAPABILITIES = {
    "attach": True,
    "selinuxRelabel": True,
    "supportsMetrics": True,
    "fsGroup": True,
    "requiresFSResize": True,
}
SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "init": (),
    "getvolumename": ("OPTIONS",),
    "attach": ("OPTIONS", "NODE"),
    "detach": ("VOLUME", "NODE"),
    "isattached": ("OPTIONS", "NODE"),
    "waitforattach": ("DEVICE", "OPTIONS"),
    "mountdevice": ("DIRECTORY", "DEVICE", "OPTIONS"),
    "unmountdevice": ("DIRECTORY",),
    "mount": ("DIRECTORY", "OPTIONS"),
    "unmount": ("DIRECTORY",),
    "expandvolume": ("OPTIONS", "DEVICE", "NEW_SIZE", "OLD_SIZE"),
    "expandfs": ("OPTIONS", "DEVICE", "DIRECTORY", "NEW_SIZE", "OLD_SIZE"),
}
"""The calls, and their arguments in order."""
CLOUD_CALLS = frozenset({"attach", "detach", "isattached", "expandvolume"})
"""Calls that need the cloud. All others run on a node without its credentials."""


class BadCall(Exception):
    """The arguments of a call are wrong. The message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: str = SUCCESS
    message: str = ""
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    """Such as `device`, `volumeName`, `attached` or `capabilities`."""

    @property
    def exit_code(self) -> int:
        return 0 if self.status == SUCCESS else 1

    def render(self) -> str:
        """Returns one line of JSON."""
        message = {"message": self.message} if self.message else {}
        return msgspec.json.encode({"status": self.status, **message, **self.fields}).decode()


DONE = Answer()
UNSUPPORTED = Answer(status=NOT_SUPPORTED)


def unknown(name: str) -> Answer:
    """Returns the answer to a call that does not exist."""
    message = f'unknown call "{name}"{did_you_mean(name, SIGNATURES)}'
    return Answer(status=NOT_SUPPORTED, message=message)


def failed(message: str) -> Answer:
    return Answer(status=FAILURE, message=message)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a volume, as kubelet passes them."""

    volume: VolumeId
    name: str
    """Of the PersistentVolume, or of a volume in the spec of a pod; empty: the caller gave none."""
    filesystem: str
    """Empty: the one that the device has, or the default."""
    read_only: bool

    @classmethod
    def of(cls, text: str) -> "Options":
        """Returns what the JSON means. Raises BadCall, and InvalidParameters for a filesystem."""
        try:
            found: object = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise BadCall(f"the options are not JSON: {error}") from error
        if not isinstance(found, dict):
            raise BadCall("the options are not a JSON object")
        options = cast("dict[str, object]", found)
        volume = str(options.get(FLEX_OPTION) or "")
        if not volume:
            raise BadCall(
                f"the options lack {FLEX_OPTION}, the ID of the volume in the cloud. Fix: set "
                f"spec.flexVolume.options.{FLEX_OPTION} of the PersistentVolume"
            )
        filesystem = str(options.get(FILESYSTEM) or "")
        read_filesystem(filesystem)
        name = str(options.get(NAME) or "")
        return cls(VolumeId(volume), name, filesystem, options.get(ACCESS) == "ro")


@dataclass(frozen=True, slots=True)
class Call:
    """One call, with its arguments by name."""

    name: str
    arguments: Mapping[str, str]

    @property
    def options(self) -> Options:
        """Raises BadCall and InvalidParameters."""
        return Options.of(self.arguments["OPTIONS"])

    @property
    def directory(self) -> Path:
        return Path(self.arguments["DIRECTORY"])

    @property
    def new_size(self) -> int:
        """Returns the new size in bytes. Raises BadCall."""
        text = self.arguments["NEW_SIZE"]
        if not (text.isascii() and text.isdigit() and int(text)):
            raise BadCall(f'the new size "{text}" is not a number of bytes')
        return int(text)


def read_call(arguments: Sequence[str]) -> Call | None:
    """Returns the call; None if this driver does not know it. Raises BadCall."""
    if not arguments:
        raise BadCall(f"the call is missing: use one of {', '.join(SIGNATURES)}")
    name, *given = arguments
    names = SIGNATURES.get(name)
    if names is None:
        return None
    if len(given) < len(names):
        usage = " ".join((name, *names))
        raise BadCall(f"{name} has {len(given)} arguments instead of {len(names)}: {usage}")
    return Call(name, dict(zip(names, given, strict=False)))
