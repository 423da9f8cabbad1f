"""Commands that a user runs find the cluster where kubectl finds it."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pileus.kube.access import Access
from pileus.kube.config.choose import load_user_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.pki import Authority
from tests.unit.kube.config.stage import NOON, Stage, authorization

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
CA = Authority("cluster-ca", now=NOON).certificate


def config(*names: str, current: str = "", **user: object) -> dict[str, object]:
    """A kubeconfig with a cluster, user and context of each name."""
    return {
        "current-context": current,
        "clusters": [{"name": n, "cluster": {"server": f"http://{n}:80"}} for n in names],
        "users": [{"name": n, "user": user or {"token": f"{n}-token"}} for n in names],
        "contexts": [
            {"name": n, "context": {"cluster": n, "user": n, "namespace": f"{n}-ns"}} for n in names
        ],
    }


@dataclass
class Home:
    """A user's folder, variables and flags."""

    folder: Path
    stage: Stage
    environ: dict[str, str] = field(default_factory=dict[str, str])

    def file(self, name: str, document: object) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
        return path

    def load(self, kubeconfig: str = "", master: str = "", context: str = "") -> Access:
        environ = {"HOME": str(self.folder), **self.environ}
        return load_user_access(kubeconfig, master, context, environ, self.stage.here)

    def listed(self, *paths: Path | str) -> None:
        self.environ["KUBECONFIG"] = os.pathsep.join(map(str, paths))


@pytest.fixture
def home(stage: Stage) -> Home:
    return Home(stage.folder / "home", stage)


def test_the_flag_goes_before_the_variable_which_goes_before_the_default_file_and_the_pod(
    home: Home,
) -> None:
    home.stage.mount_service_account("pod-token", CA)
    home.environ |= POD
    flag = home.file("flag", config("flag", current="flag"))
    variable = home.file("variable", config("variable", current="variable"))
    found = [home.load().server]
    home.file(".kube/config", config("default", current="default"))
    found.append(home.load().server)
    home.listed(variable)
    found.append(home.load().server)
    found.append(home.load(str(flag)).server)

    assert found == [
        "https://10.0.0.1:443",
        "http://default:80",
        "http://variable:80",
        "http://flag:80",
    ]


async def test_several_files_are_merged_and_the_first_counts(home: Home) -> None:
    first = home.file("1", {**config("a", token="first"), "current-context": ""})
    second = home.file("2", config("a", "b", current="b", token="second"))
    home.listed(first, home.folder / "absent", second, first)

    assert await authorization(home.load()) == "Bearer second"
    assert await authorization(home.load(context="a")) == "Bearer first"


async def test_relative_paths_start_at_the_file_that_names_them(home: Home) -> None:
    first = home.file("one/config", config("a", current="a"))
    second = home.file("two/config", config("b", tokenFile="token"))
    (home.folder / "two" / "token").write_text("from-two")
    home.listed(first, second)

    assert await authorization(home.load(context="b")) == "Bearer from-two"


def test_the_context_decides_on_the_namespace(home: Home) -> None:
    home.listed(home.file("config", config("a", "b", current="a")))

    assert home.load().namespace == "a-ns"
    assert home.load(context="b").namespace == "b-ns"


async def test_master_alone_gets_no_credentials_of_a_file_that_was_not_named(home: Home) -> None:
    home.listed(home.file("config", config("a", current="a")))

    access = home.load(master="http://other:80")

    assert access.server == "http://other:80"
    assert dict(await access.credentials.headers()) == {}


def test_errors_name_the_file_and_the_way_out(home: Home) -> None:
    good = home.file("good", config("prod", current="prod"))
    broken = home.file("broken", ["no", "kubeconfig"])
    cases = {
        (): "no cluster is configured; give --kubeconfig=FILE, set KUBECONFIG, or create ~/.kube",
        ("absent",): "KUBECONFIG=absent: cannot read it: No such file or directory",
        ("absent", "gone"): "none of these files exists",
        (str(good), str(broken)): f"KUBECONFIG: {broken}: not a kubeconfig",
    }
    for files, text in cases.items():
        home.listed(*files)
        with pytest.raises(InvalidConfiguration) as caught:
            home.load()
        assert text in str(caught.value).replace(f"{Path.cwd()}/", ""), files

    home.listed(good)
    with pytest.raises(InvalidConfiguration, match='no context "prd" .did you mean "prod"'):
        home.load(context="prd")
    home.environ.clear()
    with pytest.raises(InvalidConfiguration, match="--context=prod: there is no kubeconfig"):
        home.load(context="prod")


def test_a_401_is_explained_with_user_context_and_file(home: Home) -> None:
    first = home.file("1", config("a", current="a"))
    second = home.file("2", config("b"))
    home.listed(first, second)

    told = home.load(context="b").refused

    assert f'user "b" (context "b" of {second})' in told
    assert told.endswith(f"kubectl --kubeconfig={second} --context=b auth whoami")


def test_a_user_without_credentials_is_named(home: Home) -> None:
    file = home.file("config", config("a", current="a", **{"as": "someone"}))
    home.listed(file)

    found = home.load().refused

    assert f'user "a" (context "a" of {file}) has no credentials: add a token' in found
    assert found.endswith(f"kubectl --kubeconfig={file} --context=a auth whoami")


def test_a_401_of_a_pod_names_its_token(home: Home) -> None:
    folder = home.stage.mount_service_account("pod-token", CA)
    home.environ |= POD

    assert f"service account token {folder / 'token'}" in home.load().refused
