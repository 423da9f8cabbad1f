"""Every way to end that docs/reference/exit-codes.md lists, tried with the program itself."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.system.api_server import Refusing, refusing
from tests.system.program import LIMIT, distribution, kubeconfig, provider, says, start

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md"
ROW = re.compile(r"^\| ([^|`]+) \| `(.*)` \|$")
HERE = "--bind-address=127.0.0.1"
ALONE = "--leader-elect=false"
BYTE = b"\xe9"


def rows() -> Iterator[tuple[str, int, str]]:
    """What is wrong, the code, and the message, from the page's tables."""
    code = 0
    for line in PAGE.read_text().splitlines():
        if found := re.match(r"## Code (\d+)", line):
            code = int(found[1])
        if found := ROW.match(line):
            yield found[1].strip(), code, found[2]


@dataclass
class Place:
    """What the program finds: files, installed providers, an API server."""

    folder: Path
    api: Refusing

    def __post_init__(self) -> None:
        self.site = self.folder / "site"
        distribution(self.site, "good", provider("pass"))
        distribution(self.site, "broken", "import absent_sdk\n")
        distribution(self.site, "raising", provider("raise KeyError('region')"))
        distribution(self.site, "exiting", provider("raise SystemExit(7)"))
        distribution(self.site, "empty", provider("pass", "None"))
        untagged = "Cloud(name='fake', has_cluster_id=False)"
        distribution(self.site, "untagged", provider("pass", untagged))
        self.twice = distribution(self.folder / "twice", "other", provider("pass"), "good")
        self.kubeconfig = kubeconfig(self.folder / "down", "https://127.0.0.1:1")

    def file(self, content: bytes) -> Path:
        path = self.folder / "file"
        path.write_bytes(content)
        return path

    def flags(self, cloud: str = "good", kube: Path | None = None, port: int = 0) -> list[str]:
        return [
            f"--cloud-provider={cloud}",
            f"--kubeconfig={kube or self.kubeconfig}",
            f"--secure-port={port}",
        ]

    def of(self, authority: Path) -> Path:
        return kubeconfig(
            self.folder / "up", self.api.url, **{"certificate-authority": str(authority)}
        )


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Refusing]:
    with refusing(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture
def place(tmp_path: Path, api: Refusing) -> Place:
    return Place(tmp_path, api)


SCENES: dict[str, Callable[[Place], list[str]]] = {
    "unknown flag": lambda at: ["--kubeconfg=x"],
    "several invalid flags": lambda at: [
        *at.flags(port=10258),
        "--controllers=cloud-nod",
        "--concurrent-node-syncs=0",
        "--webhook-secure-port=10258",
    ],
    "contradictory lease durations": lambda at: [*at.flags(), "--leader-elect-renew-deadline=20s"],
    "value that is not a CIDR": lambda at: [
        *at.flags(),
        "--controllers=node-ipam-controller",
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0",
    ],
    "no provider named": lambda at: at.flags(""),
    "unknown provider": lambda at: at.flags("goood"),
    "no provider at all": lambda at: at.flags("external"),
    "cloud config missing": lambda at: [*at.flags(), f"--cloud-config={at.folder}/absent"],
    "cloud config unreadable": lambda at: [*at.flags(), f"--cloud-config={at.folder}"],
    "cloud config not UTF-8": lambda at: [*at.flags(), f"--cloud-config={at.file(b'caf' + BYTE)}"],
    "no API server configured": lambda at: ["--cloud-provider=good", "--secure-port=0"],
    "kubeconfig missing": lambda at: at.flags(kube=at.folder / "absent"),
    "kubeconfig unreadable": lambda at: at.flags(kube=at.folder),
    "kubeconfig not UTF-8": lambda at: at.flags(kube=at.file(b"a: caf\xe9\n")),
    "kubeconfig not YAML": lambda at: at.flags(kube=at.file(b"a: [\n")),
    "port in use": lambda at: [*at.flags(port=at.api.server_address[1]), HERE],
    "certificate folder not writable": lambda at: [
        *at.flags(port=10258),
        f"--cert-dir={at.file(b'')}/certificates",
    ],
    "certificate file missing": lambda at: [
        *at.flags(port=10258),
        f"--tls-cert-file={at.folder}/absent.crt",
        f"--tls-private-key-file={at.folder}/absent.key",
    ],
    "provider that cannot be imported": lambda at: at.flags("broken"),
    "provider offered twice": lambda at: at.flags("good"),
    "provider that cannot connect": lambda at: at.flags("raising"),
    "provider that exits": lambda at: at.flags("exiting"),
    "provider that yields no cloud": lambda at: at.flags("empty"),
    "cloud without a cluster ID": lambda at: at.flags("untagged"),
    "false or expired token, without leader election": lambda at: [
        *at.flags(kube=at.of(at.api.authority_file)),
        ALONE,
    ],
}


def test_the_page_and_the_scenes_are_the_same() -> None:
    assert [what for what, _, _ in rows()] == list(SCENES)


@pytest.mark.parametrize(
    ("what", "code", "message"), [pytest.param(*row, id=row[0]) for row in rows()]
)
def test_it_ends_with_the_code_and_the_words_of_the_page(
    place: Place, what: str, code: int, message: str
) -> None:
    folders = [place.site, place.twice] if "twice" in what else [place.site]
    process = start(SCENES[what](place), *folders)

    _, said = process.communicate(timeout=LIMIT)

    assert process.returncode == code, said
    assert says(said, message), said
    assert "Traceback" not in said
