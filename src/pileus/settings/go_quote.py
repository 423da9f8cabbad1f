"""How Go shows a piece of text in messages and logs: in double quotes, with escapes."""

_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def quote(text: str) -> str:
    return f'"{escape(text)}"'


def quote_all(texts: tuple[str, ...]) -> str:
    """The form of a list: `["a" "b"]`."""
    return "[" + " ".join(quote(text) for text in texts) + "]"


def escape(text: str, keep: str = "") -> str:
    """Return the text with quotes, backslashes and what cannot be printed as escapes."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return text  # most texts
    return "".join(one if one in keep else _escape(one) for one in text)


def _escape(character: str) -> str:
    if (known := _ESCAPES.get(character)) is not None:
        return known
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:  # noqa: PLR2004 -- the end of ASCII
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 -- 16 bits
