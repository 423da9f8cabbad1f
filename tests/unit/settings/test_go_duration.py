"""Go's durations are read as Go reads them and written as Go writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.settings.go_duration import parse_duration, render_duration


@pytest.mark.parametrize(
    ("text", "seconds", "normal"),
    [
        ("0", 0.0, "0s"),
        ("-0", 0.0, "0s"),
        ("300ms", 0.3, "300ms"),
        ("1.5h", 5400.0, "1h30m0s"),
        ("2h45m", 9900.0, "2h45m0s"),
        ("100m", 6000.0, "1h40m0s"),
        ("12h", 43200.0, "12h0m0s"),
        ("-1.5s", -1.5, "-1.5s"),
        ("+5s", 5.0, "5s"),
        (".5s", 0.5, "500ms"),
        ("1.s", 1.0, "1s"),
        ("1us", 1e-6, "1\N{MICRO SIGN}s"),
        ("1\N{GREEK SMALL LETTER MU}s", 1e-6, "1\N{MICRO SIGN}s"),
        ("1500ns", 1.5e-6, "1.5\N{MICRO SIGN}s"),
        ("7ns", 7e-9, "7ns"),
        ("1h1ms", 3600.001, "1h0m0.001s"),
        ("1m1m", 120.0, "2m0s"),
    ],
)
def test_a_duration_is_read_and_normalised(text: str, seconds: float, normal: str):
    assert parse_duration(text) == seconds
    assert render_duration(parse_duration(text)) == normal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10", 'time: missing unit in duration "10"'),
        ("1h5", 'time: missing unit in duration "1h5"'),
        ("10x", 'time: unknown unit "x" in duration "10x"'),
        ("10 s", 'time: unknown unit " s" in duration "10 s"'),
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        (".s", 'time: invalid duration ".s"'),
        ("abc", 'time: invalid duration "abc"'),
        ("1.2.3s", 'time: missing unit in duration "1.2.3s"'),
        ("9999999h", 'time: invalid duration "9999999h"'),
        ('"', 'time: invalid duration "\\""'),
        ("\N{ARABIC-INDIC DIGIT ONE}s", 'time: invalid duration "\N{ARABIC-INDIC DIGIT ONE}s"'),
    ],
)
def test_what_is_no_duration_is_refused_in_go_s_words(text: str, message: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the whole message is held below
        parse_duration(text)

    assert str(caught.value) == message


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_every_duration_survives_being_written_and_read(nanoseconds: int):
    seconds = nanoseconds / 10**9

    assert round(parse_duration(render_duration(seconds)) * 10**9) == nanoseconds


@given(st.text(alphabet="0123456789.hmsunu+-", max_size=12))
def test_any_text_is_either_a_duration_or_a_value_error(text: str):
    try:
        seconds = parse_duration(text)
    except ValueError:
        return

    assert abs(parse_duration(render_duration(seconds)) - seconds) < 1e-6
