"""Secrets are masked by the name of the value and by how they look."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.telemetry.mask import is_secret_name, masked, masked_by_pattern


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "access_token",
        "password",
        "clientSecret",
        "Authorization",
        "api_key",
        "apiKey",
        "accessKey",
        "private_key",
        "client-key-data",
        "credentials",
    ],
)
def test_a_value_with_such_a_name_is_a_secret(name: str):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["node", "key", "token_file", "tls-private-key-file", "secret_name", "tokens_seen", "ttl"],
)
def test_a_value_with_such_a_name_is_none(name: str):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcDEF123456", "Authorization: Bearer ***"),
        ("authorization: Basic dXNlcjpwYXNz", "authorization: Basic ***"),
        ("got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2lnbmF0dXJl!", "got ***!"),
        ("GET https://user:pa55@host/x", "GET https://user:***@host/x"),
        ("password=hunter2 next", "password=*** next"),
        ('{"client_secret": "abc", "a": 1}', '{"client_secret": "***", "a": 1}'),
        ("/x?token=abc&y=1", "/x?token=***&y=1"),
        (
            "k: -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nrest",
            "k: ***\nrest",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMII cut off", "***"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, shown: str):
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "the token expired",
        "basic authentication failed",
        "secret kube-system/cloud not found",
        "http://127.0.0.1:8080/healthz",
        "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----",
        'FLAG: --tls-private-key-file="/etc/x.key"',
    ],
)
def test_ordinary_text_is_left_alone(text: str):
    assert masked(text) == text


@given(st.from_regex(r"[A-Za-z0-9._~+/-]{16,40}", fullmatch=True))
def test_a_bearer_token_never_gets_through(token: str):
    assert masked(f"sent Bearer {token} to it") == "sent Bearer *** to it"


WORDS = st.sampled_from([
    "bearer ", "Basic ", "negotiate ", "token=", "PASSWORD: ", "passwd=", "passphrase ", "apiKey=",
    "access_key=", "private-key: ", "secret", "://user:", "@host", "eyJhbGciOi.eyJzdWIi.sig",
    "-----BEGIN RSA PRIVATE KEY-----", "\u017fecret=", "to\u212aen=", "abcDEF1234", " ", "=",
    "\u0131", "Bas\u0130c ", "bas\u0131c ", "\u2192",
])  # fmt: skip


@given(st.lists(st.one_of(WORDS, st.text(max_size=5))).map("".join))
def test_the_quick_check_overlooks_nothing_that_looks_like_a_secret(text: str):
    assert masked(text) == masked_by_pattern(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("id-eyJhbGciOiJS.eyJpc3MiOiJr.c2ln rest", "id-*** rest"),
        ("eyJhbGciOiJS.eyJpc3MiOiJr no third part", "eyJhbGciOiJS.eyJpc3MiOiJr no third part"),
        ("--my-token=abc", "--my-token=***"),
        ("a\udc80b", r"a\udc80b"),
    ],
)
def test_runs_of_words_are_searched_once_and_surrogates_are_escaped(text: str, shown: str):
    assert masked(text) == shown
