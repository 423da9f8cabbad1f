"""Each kind of value is read and written as the Go program does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.server.settings import CERTIFICATES, SniPair
from pileus.settings import kinds
from pileus.settings.go_bool import FALSE_WORDS, TRUE_WORDS
from pileus.settings.kinds import Kind
from pileus.telemetry.settings import MODULES, ModuleLevel


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_words_for_true(text: str):
    assert kinds.BOOL.parse(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_words_for_false(text: str):
    assert kinds.BOOL.parse(text) is False


@given(st.text(max_size=6))
def test_any_other_word_is_no_bool(text: str):
    if text in TRUE_WORDS | FALSE_WORDS:
        return
    with pytest.raises(ValueError, match=r"^strconv\.ParseBool: parsing .*: invalid syntax$"):
        kinds.BOOL.parse(text)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (kinds.INT, "10258", 10258),
        (kinds.INT, "-1", -1),
        (kinds.INT, "0x10", 16),
        (kinds.INT, "010", 8),
        (kinds.INT, "0b101", 5),
        (kinds.INT, "1_000", 1000),
        (kinds.INT, "0", 0),
        (kinds.LEVEL, "4", 4),
        (kinds.FLOAT, "1e2", 100.0),
        (kinds.FLOAT, ".5", 0.5),
        (kinds.IP, "::1", "::1"),
        (kinds.IP, "", ""),
        (kinds.IP, " 127.0.0.1 ", "127.0.0.1"),
        (kinds.INTS, "29,23", (29, 23)),
        (kinds.QUANTITY, "512", 512),
        (kinds.QUANTITY, "1K", 1000),
        (kinds.QUANTITY, "2Ki", 2048),
        (kinds.QUANTITY, "1.5Mi", 1572864),
        (kinds.QUANTITY, "1e3", 1000),
        (kinds.QUANTITY, "100m", 1),
        (kinds.QUANTITY, "2E", 2 * 10**18),
        (MODULES, "node*=4,,http=9", (ModuleLevel("node*", 4), ModuleLevel("http", 9))),
        (kinds.SWITCHES, " A = true , B=f,", {"A": True, "B": False}),
        (CERTIFICATES, "a.crt, a.key", (SniPair("a.crt", "a.key"),)),
        (
            CERTIFICATES,
            "a.crt,a.key:*.x.org, x.org",
            (SniPair("a.crt", "a.key", ("*.x.org", "x.org")),),
        ),
    ],
)
def test_a_value_is_read(kind: Kind[object], text: str, value: object):
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (kinds.INT, "abc", 'strconv.ParseInt: parsing "abc": invalid syntax'),
        (kinds.INT, "", 'strconv.ParseInt: parsing "": invalid syntax'),
        (kinds.INT, "08", 'strconv.ParseInt: parsing "08": invalid syntax'),
        (kinds.INT, "\N{ARABIC-INDIC DIGIT ONE}", "strconv.ParseInt"),
        (kinds.INT, "9" * 20, f'strconv.ParseInt: parsing "{"9" * 20}": value out of range'),
        (kinds.INT32, "3000000000", 'strconv.ParseInt: parsing "3000000000": value out of range'),
        (kinds.LEVEL, "a", 'strconv.ParseUint: parsing "a": invalid syntax'),
        (kinds.LEVEL, "-1", 'strconv.ParseUint: parsing "-1": invalid syntax'),
        (kinds.FLOAT, "x", 'strconv.ParseFloat: parsing "x": invalid syntax'),
        (kinds.FLOAT, "nan", 'strconv.ParseFloat: parsing "nan": invalid syntax'),
        (kinds.FLOAT, "1e99", 'strconv.ParseFloat: parsing "1e99": value out of range'),
        (kinds.IP, "foo", 'failed to parse IP: "foo"'),
        (kinds.IP, "fe80::1%eth0", 'failed to parse IP: "fe80::1%eth0"'),
        (kinds.INTS, "a,b", 'strconv.ParseInt: parsing "a": invalid syntax'),
        (kinds.QUANTITY, "x", "quantities must be a number"),
        (kinds.QUANTITY, "1ki", "quantities must be a number"),
        (MODULES, "foo", '"foo" does not have the pattern=N format'),
        (MODULES, "a=b=3", '"a=b=3" does not have the pattern=N format'),
        (MODULES, "foo=x", 'parsing verbosity in "foo=x": strconv.ParseUint: parsing "x"'),
        (kinds.SWITCHES, "A", "missing bool value for A"),
        (kinds.SWITCHES, "A=x", "invalid value of A=x, err: strconv.ParseBool: parsing"),
        (CERTIFICATES, "a", "expected comma separated certificate and key file paths"),
        (CERTIFICATES, "a,b:", "empty names list is not allowed"),
    ],
)
def test_a_wrong_value_is_refused_in_go_s_words(kind: Kind[object], text: str, message: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 -- the message is held below
        kind.parse(text)

    assert str(caught.value).startswith(message)


@given(st.integers(min_value=-(2**31), max_value=2**31 - 1))
def test_every_number_survives_being_written_and_read(number: int):
    assert kinds.INT32.parse(kinds.INT32.render(number)) == number


@given(st.dictionaries(st.from_regex(r"\A[A-Z][A-Za-z0-9]*\Z"), st.booleans(), max_size=5))
def test_every_set_of_switches_survives_being_written_and_read(switches: dict[str, bool]):
    assert kinds.SWITCHES.parse(kinds.SWITCHES.render(switches)) == switches
