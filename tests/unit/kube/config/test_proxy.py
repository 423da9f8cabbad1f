"""The proxy is the configuration's, else the environment's as Go reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.config.endpoint import proxy_for
from pileus.kube.config.errors import InvalidConfiguration
from tests.unit.kube.config.stage import Stage

PROXY = "http://proxy:3128"


def test_the_configured_proxy_wins_over_the_environment(stage: Stage) -> None:
    stage.environ.update(HTTPS_PROXY="http://other:1", NO_PROXY="*")
    stage.write({"server": "https://api:6443", "proxy-url": PROXY}, {})

    assert stage.load().proxy == PROXY


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        ("https://api", {}, None),
        ("https://api", {"HTTPS_PROXY": PROXY}, PROXY),
        ("https://api", {"https_proxy": "proxy:3128"}, PROXY),
        ("https://api", {"HTTP_PROXY": PROXY, "ALL_PROXY": PROXY}, None),
        ("http://api", {"HTTP_PROXY": PROXY}, PROXY),
        ("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://127.0.0.9:6443", {"HTTPS_PROXY": PROXY}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None),
    ],
)
def test_the_environment_names_a_proxy_by_scheme(
    server: str, environ: dict[str, str], expected: str | None
) -> None:
    assert proxy_for(server, None, environ) == expected


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        ("https://api.example.com", "example.com", True),
        ("https://example.com", "example.com", True),
        ("https://badexample.com", "example.com", False),
        ("https://example.com", ".example.com", False),
        ("https://api.example.com", "*.example.com", True),
        ("https://api.example.com", " x , API.example.com ", True),
        ("https://10.1.2.3:6443", "10.1.0.0/16", True),
        ("https://10.2.2.3:6443", "10.1.0.0/16", False),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "[fd00::1]:443", False),
        ("https://api:6443", "api:6443", True),
        ("https://api:6443", "api:443", False),
        ("https://api", "api:443", True),
        ("https://api", "*", True),
        ("https://api", ",,", False),
        ("https://api", "not/a-range", False),
    ],
)
def test_no_proxy_says_where_to_go_straight(server: str, no_proxy: str, direct: bool) -> None:
    environ = {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}

    assert (proxy_for(server, None, environ) is None) == direct


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("socks5://u:hush@proxy:1080", "proxy-url: socks5 is not supported"),
        ("ftp://u:hush@proxy", "proxy-url: expected http"),
        ("http://", "proxy-url: expected http"),
        ("http://u:hush@proxy:what", "proxy-url is not a URL"),
    ],
)
def test_proxies_that_cannot_be_used_are_told(url: str, said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said) as caught:
        proxy_for("https://api", url, {})

    assert "hush" not in str(caught.value)


@given(st.text())
def test_any_no_proxy_is_tolerated(no_proxy: str) -> None:
    proxy_for("https://10.1.2.3", None, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy})
