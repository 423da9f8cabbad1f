"""What may be written down: without secrets, in a bounded length, and possible to encode.

Secrets are found by the name of a value, and by their looks. Texts may come from users and clouds,
so each pattern searches in linear time.
"""

import re
from functools import lru_cache

MASK = "***"
LONGEST = 32 * 1024
"""Characters of one text: tracebacks fit, values of annotations may be longer."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME = re.compile(
    r"(?:^|_)(?:token|password|passwd|passphrase|secret|authorization|credentials?|cookie"
    r"|(?:api|access|private|secret|client|signing)_?key|key_data)$"
)

_KEY_BLOCK = r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)"
_BEARER = r"((?i:bearer)\s+)[A-Za-z0-9._~+/=-]{8,}"
_BASIC = r"((?i:basic|negotiate)\s+)(?=[a-z]*[A-Z0-9+/=])[A-Za-z0-9+/=]{8,}"
_SIGNED = r"(?<![\w-])(?=[\w-]++\.[\w-]{4,}+\.)([\w-]*?)\beyJ[\w-]{4,}+\.[\w-]{4,}+\.[\w-]*+"
"""The first look ahead finds whether there are three parts, once for each run of characters."""
_IN_URL = r"(://[^\s/:@\"']*:)[^\s/@\"']+(?=@)"
_AFTER_A_NAME = (
    r"(?i)((?<![\w-])[\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key"
    r"|private[_-]?key)\\?[\"']?\s*[=:]\s*\\?[\"']?)[^\s\"'&,;\\{}\[\]]+"
)
_PATTERNS = (
    (re.compile(_KEY_BLOCK), MASK),
    (re.compile(_BEARER), rf"\1{MASK}"),
    (re.compile(_BASIC), rf"\1{MASK}"),
    (re.compile(_SIGNED), rf"\1{MASK}"),
    (re.compile(_IN_URL), rf"\1{MASK}"),
    (re.compile(_AFTER_A_NAME), rf"\1{MASK}"),
)


_HINTS = (
    "-----begin",
    "bearer",
    "basic",
    "negotiate",
    "eyj",
    "@",
    "passw",
    "passphrase",
    "secret",
    "token",
    "key",
)
"""A text without any of these, in lower case, has nothing that looks like a secret."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_FOLDED = str.maketrans({"\u017f": "s", "\u0131": "i", "\u0130": "i"})
"""Letters that patterns without case match as well, and that `str.lower` does not replace."""


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether a value of this name is a secret itself (not a file, a name or a lifetime of one)."""
    words = _CAMEL.sub("_", name).replace("-", "_").replace(".", "_").lower()
    return _NAME.search(words) is not None


def masked(text: str) -> str:
    """Return the text as it may be written down, with everything that looks like a secret replaced.

    Lone surrogates, which no encoding has, become escapes. A text beyond `LONGEST` is cut.
    """
    if text[LONGEST:]:
        text = f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters)"
    if text.isascii():
        return masked_by_pattern(text) if _is_suspicious(text.lower()) else text
    if _SURROGATE.search(text) is not None:
        text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    plain = text.translate(_FOLDED).lower()
    return masked_by_pattern(text) if _is_suspicious(plain) else text


def masked_by_pattern(text: str) -> str:
    """As `masked`, without the quick check that spares most texts the search."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def _is_suspicious(text: str) -> bool:
    for hint in _HINTS:  # noqa: SIM110 -- `any` takes twice the time, for dozens of texts in a pass
        if hint in text:
            return True
    return False
