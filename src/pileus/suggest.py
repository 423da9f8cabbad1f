"""Suggestions for misspelled words."""

from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word that is most similar, ignoring case; None if none is similar."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only for misspelled words

    by_folded = {candidate.casefold(): candidate for candidate in sorted(known, reverse=True)}
    matches = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: ` (did you mean "x"?)`, or "" if no word is similar."""
    match = closest(word, known)
    return "" if match is None else f' (did you mean "{match}"?)'
