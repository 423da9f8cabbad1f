"""The words for true and false that Go knows, and thereby flags, labels and options."""

TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE_WORDS = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def truth(text: str) -> bool | None:
    """What a word says; None if it is none of them."""
    if text in TRUE_WORDS:
        return True
    return False if text in FALSE_WORDS else None
