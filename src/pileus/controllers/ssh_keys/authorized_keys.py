"""From what the source says to the keys that are wanted. Pure; what is wrong is said, never shown.

A source has an entry for each user: lines as in `authorized_keys`, or the word `none`.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pileus.cloud.model import SshKey
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
"""The explicit way to say that a user is to have no key."""
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
PRIVATE = re.compile(rb"PRIVATE KEY")
LENGTH = 4
"""Bytes in front of each field of a key, which say how long it is."""


@dataclass(frozen=True, slots=True)
class Wanted:
    keys: frozenset[SshKey] = frozenset()
    problems: tuple[str, ...] = ()
    """What could not be read, each with its place. Never a word of the source itself."""

    @property
    def is_whole(self) -> bool:
        """Whether a key that is not among them is known to be unwanted."""
        return not self.problems


def read(entries: Mapping[str, bytes]) -> Wanted:
    """All keys that can be read, and what cannot. Never empty without a problem or a `none`."""
    keys: set[SshKey] = set()
    problems: list[str] = []
    if not entries:
        problems.append(f'it has no entry; to withdraw all keys, let a user\'s entry say "{NONE}"')
    for user, text in sorted(entries.items()):
        try:
            for found in _entry(user, text):
                keys.add(found) if isinstance(found, SshKey) else problems.append(found)
        except _Refused as refused:
            problems.append(f"entry {quote(user)}: {refused}")
    return Wanted(frozenset(keys), tuple(problems))


class _Refused(Exception):
    """Why an entry or a line cannot be used."""


def _entry(user: str, text: bytes) -> Iterator[SshKey | str]:
    """The keys of a user, and what is wrong with single lines."""
    if PRIVATE.search(text):
        raise _Refused(
            "holds a PRIVATE key. Nothing of the entry is used: put the public key there, and "
            "replace that key pair, for it is known to all who may read the source"
        )
    if not USER.fullmatch(user):
        raise _Refused("is not the name of a user that could log in")
    lines = [line.strip() for line in _decoded(text).splitlines()]
    if lines == [NONE]:
        return
    if not any(_is_told(line) for line in lines):
        raise _Refused(f'has no key; if the user is to have none, say "{NONE}"')
    for number, line in enumerate(lines, 1):
        if _is_told(line):
            try:
                yield SshKey(user, _public_key(line))
            except _Refused as refused:
                yield f"entry {quote(user)}, line {number}: {refused}"


def _is_told(line: str) -> bool:
    return line != "" and not line.startswith("#")


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise _Refused(f"is not UTF-8 text (byte {error.start})") from None


def _public_key(line: str) -> str:
    """Algorithm and body. Errors: `_Refused`, which does not quote the line."""
    algorithm, _, rest = line.partition(" ")
    if algorithm not in ALGORITHMS:
        raise _Refused(
            "does not begin with the algorithm of a public key (such as ssh-ed25519); options in "
            "front of it, certificates and DSA keys are not supported"
        )
    body = rest.split(maxsplit=1)[0] if rest.strip() else ""
    if not _is_of(algorithm, body):
        raise _Refused(f"what follows {algorithm} is no such key; was a part of it lost?")
    return f"{algorithm} {body}"


def _is_of(algorithm: str, body: str) -> bool:
    """Whether the body says of itself that it is a key of that algorithm, and is whole."""
    try:
        raw = b64decode(body, validate=True)
    except binascii.Error:
        return False
    fields = list(_fields(raw))
    return len(fields) > 1 and fields[0] == algorithm.encode() and all(fields)


def _fields(raw: bytes) -> Iterator[bytes]:
    """The parts of a key; one that is cut off comes as an empty one."""
    while raw:
        size = int.from_bytes(raw[:LENGTH], "big")
        field, raw = raw[LENGTH : LENGTH + size], raw[LENGTH + size :]
        yield field if len(field) == size else b""
