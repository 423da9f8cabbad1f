"""What a mistyped word was probably meant to be."""

from collections.abc import Iterable
from difflib import get_close_matches


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most resembles, upper and lower case alike; None if none does."""
    by_folded = {candidate.casefold(): candidate for candidate in sorted(known, reverse=True)}
    matches = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error message: ` (did you mean "x"?)`, or nothing if no word comes close."""
    match = closest(word, known)
    return "" if match is None else f' (did you mean "{match}"?)'
