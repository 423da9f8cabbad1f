"""The command in a message that fixes what it reports, and texts of others in messages.

    Misconfigured(f"annotation {name}: {quoted(value)} is not a number. Fix: kubectl annotate …")
    fix_in(message)                                         # kubectl annotate …

Operators paste such a command. What users and clouds wrote must not look like one. A fix of
`pileus doctor` may also have advice before the command, and a comment after it:

    parts_of("edit x, then: kubectl get y   # or: pileus plan")
    # ("edit x, then:", "kubectl get y", "or: pileus plan")
"""

import json
import re
from collections.abc import Iterator

FIX = " Fix: "
COMMANDS = ("kubectl ", "pileus ")
LONGEST = 200
"""Characters of a value that a message quotes."""
LONGEST_LINE = 4096
"""Characters of any other text. That of a user may have a million."""
_BEGIN = re.compile(r"(?:^|: )(?=(?:helm|kubectl|openstack|pileus|timedatectl) )")
"""A fix, or what follows a colon in it, is a command if it begins with one of these programs."""
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|['"\\].*)+""", re.DOTALL)
"""A word of a shell. A quote that is not closed lasts until the end."""


def fix_in(message: str) -> str:
    """Returns the command that the message ends with (`… Fix: kubectl …`), or ""."""
    fix = message.partition(FIX)[2].partition(" (")[0]
    return fix if fix.startswith(COMMANDS) else ""


def quoted(text: str, longest: int = LONGEST) -> str:
    """Returns a text of a user in quotes: in one line, bounded, and without a fix."""
    return f'"{one_line(text, longest)}"'


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Returns a text of a user or a cloud in one line, bounded, and without a fix."""
    if len(text) > longest:
        text = f"{text[:longest]}…"
    return printable(text).replace("Fix:", "Fix\\u003a")


def printable(text: str) -> str:
    """Returns the text with escapes for control characters, line breaks and lone surrogates."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def parts_of(fix: str) -> tuple[str, str, str]:
    """Returns the advice before the command of a fix, the command, and the comment after it."""
    begin = _BEGIN.search(fix)
    if begin is None:
        return fix, "", ""
    words = list(_WORD.finditer(fix, begin.end()))
    end = next((word.start() for word in words if word[0].startswith("#")), len(fix))
    return fix[: begin.end()].rstrip(), fix[begin.end() : end].rstrip(), fix[end:].lstrip("# ")


def commands_in(fix: str) -> Iterator[str]:
    """Yields the commands of a fix, also those in its comment."""
    _, command, comment = parts_of(fix)
    if command:
        yield command
        yield from commands_in(comment)


def shell_words(command: str) -> list[str]:
    """Returns the words of a command as they are written, with their quotes."""
    return _WORD.findall(command)
