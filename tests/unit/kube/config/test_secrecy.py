"""No secret is ever shown: not by an access, not by an error, not in the log."""

import base64
import json
import logging
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.config.errors import InvalidConfiguration
from tests.unit.kube.config.stage import Stage

MARK = "Zq7wX9"
FIELDS = (
    "token",
    "tokenFile",
    "username",
    "password",
    "client-certificate-data",
    "client-key-data",
    "as-uid",
)
VALUES = st.one_of(
    st.sampled_from(["", " ", "\n", "\x00", "é"]).map(lambda odd: MARK + odd),
    st.sampled_from([MARK, base64.b64encode(MARK.encode()).decode()]),
    st.just([MARK]),
)
USERS = st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1)
EXECS = st.fixed_dictionaries(
    {},
    optional={
        "apiVersion": st.sampled_from([f"client.authentication.k8s.io/{v}" for v in ("v1", "v2")]),
        "command": st.just("login"),
        "args": st.just([MARK]),
        "env": st.just([{"name": "X", "value": MARK}]),
        "interactiveMode": st.sampled_from(["Never", "Always"]),
    },
)
PROXIES = st.sampled_from([None, f"http://u:{MARK}@p:1", f"socks5://u:{MARK}@p", f"http://{MARK}@"])


@given(user=USERS, execs=st.none() | EXECS, proxy=PROXIES)
def test_neither_an_access_nor_an_error_shows_a_secret(
    user: dict[str, object], execs: object, proxy: str | None
) -> None:
    shown: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(repr(vars(record)))
    logging.getLogger().addHandler(handler)
    # The name of a file is no secret, and is told.
    user = {**user, **({"tokenFile": "nope"} if "tokenFile" in user else {})}
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        cluster = {"server": "https://a", "insecure-skip-tls-verify": True, "proxy-url": proxy}
        stage.write(cluster, {**user, "exec": execs})
        try:
            access = stage.load()
            shown.append(repr(access) + repr(access.credentials) + repr(access.anonymous))
        except InvalidConfiguration as e:
            shown.append(str(e))
        finally:
            logging.getLogger().removeHandler(handler)

    assert shown
    assert MARK not in json.dumps(shown)
    assert base64.b64encode(MARK.encode()).decode() not in json.dumps(shown)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_a_proxy_of_the_environment_is_not_shown(stage: Stage, name: str) -> None:
    stage.environ[name] = f"http://u:{MARK}@p:1"
    stage.write({"server": "https://a"}, {})

    access = stage.load()

    assert access.proxy == f"http://u:{MARK}@p:1"
    assert MARK not in repr(access)
