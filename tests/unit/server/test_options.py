"""The one flag that has a grammar of its own."""

import pytest

from pileus.server.errors import BadOption
from pileus.server.options import SniPair


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a.crt,a.key", SniPair("a.crt", "a.key"), id="names from the certificate"),
        pytest.param(
            "a.crt, a.key:*.shop.test,shop.test",
            SniPair("a.crt", "a.key", ("*.shop.test", "shop.test")),
            id="names given",
        ),
    ],
)
def test_a_key_pair_for_host_names_is_read(text: str, expected: SniPair):
    assert SniPair.parse(text) == expected


@pytest.mark.parametrize("text", ["", "a.crt", "a.crt,", "a,b,c", "a,b:", "a,b:x,,y"])
def test_what_is_no_key_pair_is_refused_with_the_flags_name(text: str):
    with pytest.raises(BadOption, match="--tls-sni-cert-key"):
        SniPair.parse(text)
