"""Booleans as Go spells them in flags, labels and annotations."""

TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE_WORDS = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def go_bool(text: str) -> bool | None:
    """Returns the value that Go's strconv.ParseBool reads; None if it reads none."""
    if text in TRUE_WORDS:
        return True
    return False if text in FALSE_WORDS else None
