"""Comma-separated lists follow the rules of CSV."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.settings.go_csv import parse_list, render_list


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", ()),
        ("a", ("a",)),
        ("a,b", ("a", "b")),
        ("a,", ("a", "")),
        (",", ("", "")),
        (" a, b", (" a", " b")),
        ('"a,b",c', ("a,b", "c")),
        ('"say ""no"""', ('say "no"',)),
        ('"two\nlines"', ("two\nlines",)),
    ],
)
def test_a_list_is_split_at_commas_outside_quotes(text: str, fields: tuple[str, ...]):
    assert parse_list(text) == fields


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('a"b', 'parse error on line 1, column 2: bare " in non-quoted-field'),
        ('"a', 'parse error on line 1, column 3: extraneous or missing " in quoted-field'),
        ('"a"b', 'parse error on line 1, column 3: extraneous or missing " in quoted-field'),
        ("a\nb", "parse error on line 1, column 2: a list is one line"),
    ],
)
def test_a_stray_quote_or_line_is_refused(text: str, message: str):
    with pytest.raises(ValueError, match="parse error") as caught:
        parse_list(text)

    assert str(caught.value).startswith(message)


@given(st.lists(st.text(max_size=8), max_size=6).filter(lambda fields: fields != [""]))
def test_every_list_survives_being_written_and_read(fields: list[str]):
    assert parse_list(render_list(fields)) == tuple(fields)
