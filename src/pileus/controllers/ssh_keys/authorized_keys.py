"""Parses the desired keys. Pure. Messages about problems never contain text of the source.

A source has an entry for each user: lines as in `authorized_keys`, or the word `none`.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping

from pileus.cloud.model import SshKey
from pileus.dataclass import dataclass
from pileus.settings.go_quote import quote

ALGORITHMS = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
NONE = "none"
"""The text of the entry of a user who has no keys."""
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
PRIVATE = re.compile(rb"PRIVATE KEY")
LENGTH = 4
"""Bytes of the length in front of each field of a key."""


@dataclass(frozen=True, slots=True)
class DesiredKeys:
    keys: frozenset[SshKey] = frozenset()
    problems: tuple[str, ...] = ()
    """What could not be parsed, each with its place, without text of the source."""

    @property
    def is_complete(self) -> bool:
        """Whether all desired keys are known, so that other keys are unwanted."""
        return not self.problems


def parse(entries: Mapping[str, bytes]) -> DesiredKeys:
    """Returns all valid keys, and problems. Without keys there is a problem or a `none`."""
    keys: set[SshKey] = set()
    problems: list[str] = []
    if not entries:
        problems.append(
            f'it has no entries; to withdraw all keys, set the entry of a user to "{NONE}"'
        )
    for user, text in sorted(entries.items()):
        try:
            for found in _entry(user, text):
                keys.add(found) if isinstance(found, SshKey) else problems.append(found)
        except _Refused as refused:
            problems.append(f"entry {quote(user)}: {refused}")
    return DesiredKeys(frozenset(keys), tuple(problems))


class _Refused(Exception):
    """Why an entry or a line is invalid."""


def _entry(user: str, text: bytes) -> Iterator[SshKey | str]:
    """Yields the keys of a user, and a message about each invalid line."""
    if PRIVATE.search(text):
        raise _Refused(
            "contains a PRIVATE key, so the whole entry is ignored. Use the public key, and "
            "replace the key pair: everyone who can read the source knows the private key"
        )
    if not USER.fullmatch(user):
        raise _Refused("is not a valid user name")
    lines = [line.strip() for line in _decoded(text).splitlines()]
    if lines == [NONE]:
        return
    if not any(_is_content(line) for line in lines):
        raise _Refused(f'has no key; if the user should have none, set it to "{NONE}"')
    for number, line in enumerate(lines, 1):
        if _is_content(line):
            try:
                yield SshKey(user, _public_key(line))
            except _Refused as refused:
                yield f"entry {quote(user)}, line {number}: {refused}"


def _is_content(line: str) -> bool:
    return line != "" and not line.startswith("#")


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise _Refused(f"is not UTF-8 text (byte {error.start})") from None


def _public_key(line: str) -> str:
    """Returns algorithm and body. Raises `_Refused`, which does not quote the line."""
    algorithm, _, rest = line.partition(" ")
    if algorithm not in ALGORITHMS:
        raise _Refused(
            "does not start with a public key algorithm such as ssh-ed25519; options, certificates "
            "and DSA keys are not supported"
        )
    body = rest.split(maxsplit=1)[0] if rest.strip() else ""
    if not _is_of(algorithm, body):
        raise _Refused(
            f"the text after {algorithm} is not a valid key of this type; is it truncated?"
        )
    return f"{algorithm} {body}"


def _is_of(algorithm: str, body: str) -> bool:
    """Whether the body is a complete key of that algorithm."""
    try:
        raw = b64decode(body, validate=True)
    except binascii.Error:
        return False
    fields = list(_fields(raw))
    return len(fields) > 1 and fields[0] == algorithm.encode() and all(fields)


def _fields(raw: bytes) -> Iterator[bytes]:
    """Yields the fields of a key; a truncated one is empty."""
    while raw:
        size = int.from_bytes(raw[:LENGTH], "big")
        field, raw = raw[LENGTH : LENGTH + size], raw[LENGTH + size :]
        yield field if len(field) == size else b""
