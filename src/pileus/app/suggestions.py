"""The known word that a mistyped one was probably meant to be."""

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word most like `word`; None when nothing is like it."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    folded = word.lower()
    longer = sorted((one for one in by_folded if folded and one.startswith(folded)), key=len)
    found = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.7) or longer
    return by_folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a question to append to an error message, or nothing."""
    found = nearest(word, known)
    return f"did you mean {prefix}{found}?" if found else ""
