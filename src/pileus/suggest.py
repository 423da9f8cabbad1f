"""Suggestions for misspelled words."""

from collections.abc import Iterable

LONGEST = 100
"""Characters of a word that similar words are searched for. A user's text may have 256 KiB."""
MOST = 500
"""Known words that are compared."""


def closest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word that is most similar, ignoring case; None if none is similar.

    A much longer or shorter word is another word, not a misspelled one: "nonsense" is not "none".
    The beginning of a long one is suggested.
    None also for words that are too long. If very many are known, not all are compared.
    """
    if len(word) > LONGEST:
        return None
    from difflib import get_close_matches  # noqa: PLC0415 -- only for misspelled words

    by_folded = {
        candidate.casefold(): candidate for candidate in sorted(known, reverse=True)[-MOST:]
    }
    folded = word.casefold()
    for each in get_close_matches(folded, by_folded, n=5, cutoff=0.6):
        is_near = abs(len(word) - len(each)) <= max(2, len(each) // 2)
        if is_near or each.startswith(folded):
            return by_folded[each]
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns the end of an error message: ` (did you mean "x"?)`, or "" if no word is similar."""
    match = closest(word, known)
    return "" if match is None else f' (did you mean "{match}"?)'
