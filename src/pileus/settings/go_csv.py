"""Comma-separated lists as Go's CSV reader takes them: `a,"b,c"` are the two fields a and b,c."""

from collections.abc import Iterable, Iterator


def parse_list(text: str) -> tuple[str, ...]:
    """Return the fields of one CSV record; no text is no field. ValueError on a stray quote."""
    return tuple(_fields(text)) if text else ()


def render_list(fields: Iterable[str]) -> str:
    """Return text that `parse_list` reads back, unless the list is one empty field."""
    return ",".join(_written(field) for field in fields)


def _fields(text: str) -> Iterator[str]:
    position = 0
    while True:
        quoted = text.startswith('"', position)
        field, position = (_quoted if quoted else _plain)(text, position)
        yield field
        if position == len(text):
            return
        position += 1


def _plain(text: str, start: int) -> tuple[str, int]:
    comma = text.find(",", start)
    end = comma if comma >= 0 else len(text)
    field = text[start:end]
    if (quote := field.find('"')) >= 0:
        raise _bad(start + quote, 'bare " in non-quoted-field')
    if (line := field.find("\n")) >= 0:
        raise _bad(start + line, "a list is one line; quote a field that has more")
    return field, end


def _quoted(text: str, start: int) -> tuple[str, int]:
    pieces: list[str] = []
    position = start + 1
    while (closing := text.find('"', position)) >= 0:
        pieces.append(text[position:closing])
        position = closing + 1
        if text.startswith('"', position):
            pieces.append('"')
            position += 1
        elif position == len(text) or text[position] == ",":
            return "".join(pieces), position
        else:
            break
    raise _bad(closing if closing >= 0 else len(text), 'extraneous or missing " in quoted-field')


def _bad(position: int, reason: str) -> ValueError:
    return ValueError(f"parse error on line 1, column {position + 1}: {reason}")


def _written(field: str) -> str:
    plain = not field.startswith((" ", "\t")) and not any(sign in field for sign in ',"\r\n')
    return field if plain else '"' + field.replace('"', '""') + '"'
