"""Keep secrets out of foreign text that is about to be shown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

MASK = "***"

_SHORTEST = 4
"""Shorter values ("1", "yes") are no secrets, and masking them would garble any text."""

_SHAPES = (
    re.compile(r"eyJ[\w-]{6,}(?:\.[\w-]*)*"),  # JSON web tokens
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)", re.DOTALL),
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),  # user:password in a URL
    re.compile(r"(?i)(?<=basic )[a-z0-9+/=]{8,}"),
    re.compile(r"\bk8s-aws-v1\.[\w=-]+"),  # EKS
    re.compile(r"\b(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{12,}\b"),  # access keys of AWS
    re.compile(r"\b(?:gh[opsur]|github_pat|glpat|xox[abeprs])[-_][\w-]{10,}"),
    re.compile(r"\bya29\.[\w.-]+"),  # Google
    re.compile(r"(?<![\w/+=.-])(?=\S*[a-z])(?=\S*[A-Z])(?=\S*\d)[\w/+]{40}(?![\w/+=-]|\.\w)"),
    re.compile(r"(?<![\w./-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)[\w-]{48,}={0,2}"),
)
"""The last two: secret keys of AWS, and what is too long and too mixed for a word."""
_BEARER = re.compile(r"""(?i)(\bbearer(?:\s+|\s*[:=]\s*)["']?)[^\s"',;]+""")
_NAMED = re.compile(
    r"""(?ix)
    ( [\w-]* (?: token|passw(?:or)?d|passphrase|pwd|secret|credential|signature|assertion
             | (?:api|access|account|private|shared|auth)[_-]?key ) [\w-]* \\?["']? \s* [:=] \s* )
    ( "[^"]*" | '[^']*' | [^\s,;&]+ )
    """
)
_TELLING = re.compile(r"(?i)token|passw|secret|key|credential")


def mask(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without the secrets given, and without whatever looks like one."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    for shape in _SHAPES:
        text = shape.sub(MASK, text)
    return _NAMED.sub(rf"\1{MASK}", _BEARER.sub(rf"\1{MASK}", text))


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of those environment variables whose name says that they are secret."""
    return tuple(value for name, value in environ.items() if _TELLING.search(name))


def secret_args(args: Sequence[str]) -> tuple[str, ...]:
    """The values of those options whose name says so: `--token=x`, or `--token x`."""
    joined = [(arg.partition("=")[0], arg.partition("=")[2]) for arg in args if "=" in arg]
    apart = [(name, value) for name, value in pairwise(args) if "=" not in name]
    return tuple(
        value for name, value in joined + apart if name.startswith("-") and _TELLING.search(name)
    )
