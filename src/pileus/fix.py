"""The command in a message that fixes what it reports, and texts of others in messages.

    Misconfigured(f"annotation {name}: {quoted(value)} is not a number. Fix: kubectl annotate …")
    fix_in(message)                                         # kubectl annotate …

Operators paste such a command. What users and clouds wrote must not look like one.
"""

import json

FIX = " Fix: "
COMMANDS = ("kubectl ", "pileus ")
LONGEST = 200
"""Characters of a value that a message quotes."""
LONGEST_LINE = 4096
"""Characters of any other text. That of a user may have a million."""


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
    if not text.isprintable():
        text = "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
    return text.replace("Fix:", "Fix\\u003a")
