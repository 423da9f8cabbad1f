"""The container image: its content, its run without any rights, and repeatable builds."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.apt import Unavailable
from tools.build_image.__main__ import BILL, CONFIG, DEBIAN, DEBIAN_CSI
from tools.build_image.architecture import AMD64, ARCHITECTURES
from tools.build_image.debian import read_lock
from tools.build_image.oci import full_name
from tools.build_image.wheels import LOCK, ROOT, SITE, Wheel, closure

from pileus.version import PILEUS

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("image")]
COLD_LIMIT = 540
ELF_MACHINES = {"amd64": 62, "arm64": 183}
"""EM_X86_64 and EM_AARCH64, in the header of every program and library."""
CANNOT_BUILD = 3
AS_NOBODY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && root=$1 && shift &&
exec chroot --userspec=65532:65532 "$root" "$@"
"""


class Built:
    """An archive, and the files of one of its images in a folder."""

    def __init__(self, archive: Path, folder: Path, architecture: str = "") -> None:
        self.archive = archive
        self.root = folder / "root"
        with tarfile.open(archive) as outer:
            outer.extractall(folder / "layout", filter="data")
        (described,) = self._json("index.json")["manifests"]
        self.names = described["annotations"]
        if architecture:
            (described,) = (
                each
                for each in self._blob(described)["manifests"]
                if each["platform"] == {"architecture": architecture, "os": "linux"}
            )
        self.manifest = self._blob(described)
        self.config = self._blob(self.manifest["config"])
        for layer in self.manifest["layers"]:
            with tarfile.open(self._path(layer)) as inner:
                inner.extractall(self.root, filter="tar")

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command as uid 65532 on the read-only files of the image, without network."""
        environment = dict(each.split("=", 1) for each in self.config["config"]["Env"])
        return subprocess.run(
            ["unshare", "--mount", "--net", "bash", "-c", AS_NOBODY, "run", self.root, *command],
            env=environment | {"PATH": f"{environment['PATH']}:/usr/sbin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _blob(self, described):
        return json.loads(self._path(described).read_bytes())

    def _path(self, described) -> Path:
        return self.root.parent / "layout/blobs/sha256" / described["digest"].split(":")[1]

    def _json(self, name: str):
        return json.loads((self.root.parent / "layout" / name).read_text())


def build(folder: Path, *arguments: str) -> Built:
    return Built(build_archive(folder, *arguments), folder)


def build_archive(folder: Path, *arguments: str) -> Path:
    output = folder / "image.oci.tar"
    command = [sys.executable, "-m", "tools.build_image", "--output", str(output), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=COLD_LIMIT, check=False
    )
    if done.returncode == CANNOT_BUILD:
        pytest.skip(f"THE IMAGE CANNOT BE BUILT HERE: {done.stderr.strip()}. Try: make image")
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def lab_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("image")
    yield build(folder, "--extras", "lab")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def plain_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("plain")
    yield build(folder, "--image", "registry.example/team/pileus:next")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def both_images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Built]]:
    folder = tmp_path_factory.mktemp("both")
    names = tuple(ARCHITECTURES)
    archive = build_archive(folder, "--arch", ",".join(names), "--extras", "csi")
    yield {name: Built(archive, folder / name, name) for name in names}
    shutil.rmtree(folder)


needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="THE IMAGE WAS NOT RUN: that needs root (unshare, chroot)"
)


@needs_root
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("cloud-controller-manager", "--version"), f"Pileus {PILEUS}"),
        (("pileus", "providers"), "pileus_lab.local.connect"),
    ],
)
def test_commands_run_as_another_user_on_a_read_only_root(lab_image, command, expected):
    done = lab_image.run(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert expected in done.stdout


@needs_root
def test_the_manager_starts_in_the_image_and_misses_only_an_api_server(lab_image):
    (entry,) = lab_image.config["config"]["Entrypoint"]
    done = lab_image.run(entry, "--cloud-provider=local")
    assert done.returncode == 1
    assert "no API server is configured" in done.stderr


@needs_root
def test_python_has_its_libraries_and_certificates(lab_image):
    done = lab_image.run(
        "python3",
        "-c",
        "import importlib, pathlib, ssl, sqlite3, uvloop\n"
        "for each in pathlib.Path('/usr/lib/python3.11/lib-dynload').glob('*.so'):\n"
        "    importlib.import_module(each.name.split('.')[0])\n"
        "print(ssl.create_default_context().cert_store_stats()['x509_ca'])",
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_image_has_the_programs_of_its_architecture_only(
    both_images: dict[str, Built], name: str
):
    built, machine = both_images[name], ELF_MACHINES[name]

    programs = {path: head(path) for path in built.root.rglob("*") if not path.is_symlink()}
    found = {path: int.from_bytes(text[18:20], "little") for path, text in programs.items() if text}

    assert built.config["architecture"] == name
    assert len(found) > 60
    assert {path for path, one in found.items() if one != machine} == set()
    assert head((built.root / ARCHITECTURES[name].loader).resolve())
    assert (built.root / "sbin/mkfs.ext4").exists(), "the extra csi has Debian packages of its own"
    bill = json.loads((built.root / BILL).read_text())
    debs = [one["purl"] for one in bill["components"] if one["purl"].startswith("pkg:deb/")]
    assert debs
    assert all(f"?arch={name}&" in one for one in debs)


def head(path: Path) -> bytes:
    """Returns the header of an ELF file; empty for other files."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        text = file.read(20)
    return text if text.startswith(b"\x7fELF") else b""


def test_images_of_all_architectures_have_the_same_modules_and_bytecode(
    both_images: dict[str, Built],
):
    one, other = (
        {str(path.relative_to(each.root)): path for path in each.root.rglob("*.py*")}
        for each in both_images.values()
    )
    own = re.compile(r"_sysconfigdata_|\.cpython-311-|direct_url|EXTERNALLY")

    assert {name for name in one.keys() ^ other.keys() if not own.search(name)} == set()
    compiled = [name for name in one.keys() & other.keys() if name.endswith(".pyc")]
    assert len(compiled) > 500
    assert [name for name in compiled if one[name].read_bytes() != other[name].read_bytes()] == []


@pytest.mark.parametrize("name", [DEBIAN, DEBIAN_CSI])
def test_the_locks_of_all_architectures_have_the_same_packages(name: str):
    one, other = (
        {(each.name, each.version): each.sha256 for each in read_lock(architecture.lock(name))}
        for architecture in ARCHITECTURES.values()
    )

    assert one.keys() == other.keys()
    assert one != other


def test_a_second_build_gives_the_same_bytes(lab_image, tmp_path):
    again = build(tmp_path, "--extras", "lab")
    assert again.archive.read_bytes() == lab_image.archive.read_bytes()


def test_the_image_has_no_path_of_the_machine(lab_image):
    ours = [str(ROOT), str(Path.home() / ".cache"), "pileus-image-", "making-"]
    own = (lab_image.root / SITE).glob("pileus*/**/*")
    compiled = lab_image.root.glob("**/*.pyc")
    for path in {path for path in (*own, *compiled) if path.is_file()}:
        content = path.read_bytes()
        assert not [each for each in ours if each.encode() in content], path
    assert not list(lab_image.root.glob("**/direct_url.json"))


def test_every_module_is_compiled(lab_image):
    sources = [*(lab_image.root / SITE).rglob("*.py")]
    missing = [
        path
        for path in sources
        if not (path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc").exists()
    ]
    assert len(sources) > 500
    assert missing == []


def test_the_bill_of_materials_lists_what_the_image_has(lab_image):
    bill = json.loads((lab_image.root / BILL).read_text())
    assert bill == json.loads(lab_image.archive.with_suffix(".cdx.json").read_text())
    listed = {each["name"] for each in bill["components"] if each["purl"].startswith("pkg:deb/")}
    assert listed == {path.name for path in (lab_image.root / "var/lib/dpkg/status.d").iterdir()}
    wheels = {
        each["purl"].removeprefix("pkg:pypi/").replace("@", "-")
        for each in bill["components"]
        if each["purl"].startswith("pkg:pypi/")
    }
    found = (lab_image.root / SITE).glob("*.dist-info")
    assert wheels == {path.name.removesuffix(".dist-info").replace("_", "-") for path in found}
    assert all(len(each["hashes"][0]["content"]) == 64 for each in bill["components"])


def test_the_product_alone_is_in_the_image_unless_an_extra_is_chosen(lab_image, plain_image):
    assert (lab_image.root / SITE / "pileus_lab").is_dir()
    assert (plain_image.root / SITE / "pileus").is_dir()
    assert not (plain_image.root / SITE / "pileus_lab").exists()
    assert not (plain_image.root / "bin/sh").exists()


def test_images_share_the_layers_below_pileus(lab_image, plain_image):
    lab, plain = (each.manifest["layers"] for each in (lab_image, plain_image))
    assert lab[:-1] == plain[:-1]
    assert plain[-1]["size"] < sum(each["size"] for each in plain) / 5
    assert lab[-1]["size"] < sum(each["size"] for each in lab) / 4  # with what only it needs


def test_the_archive_names_the_image_as_kubernetes_completes_it(lab_image, plain_image):
    name = "io.containerd.image.name"
    assert lab_image.names[name] == f"docker.io/library/pileus:{PILEUS}"
    assert plain_image.names[name] == "registry.example/team/pileus:next"
    assert full_name("team/pileus:1") == "docker.io/team/pileus:1"
    assert full_name("localhost:5000/pileus:1") == "localhost:5000/pileus:1"


def test_files_belong_to_root_and_nothing_but_tmp_is_writable_by_others(lab_image):
    for layer in lab_image.manifest["layers"]:
        with tarfile.open(lab_image._path(layer)) as archive:
            for entry in archive:
                assert (entry.uid, entry.gid, entry.mtime) == (0, 0, 315532800), entry.name
                writable = entry.mode & 0o022 and not entry.issym()
                assert not writable or entry.name == "tmp", entry.name


def test_the_containerfile_configures_the_image_as_the_tool_does():
    text = (ROOT / "Containerfile").read_text()
    final = text.rpartition("FROM scratch")[2]
    said = dict(line.split(" ", 1) for line in final.splitlines() if line.strip())
    assert said["USER"] == CONFIG["User"]
    assert said["ENV"].split() == CONFIG["Env"]
    assert said["WORKDIR"] == CONFIG["WorkingDir"]
    assert json.loads(said["ENTRYPOINT"]) == CONFIG["Entrypoint"]
    for lock in re.findall(r"requirements/[a-z0-9-]+\.lock", text):
        assert (ROOT / lock).exists()


def test_the_image_has_the_versions_that_the_tests_ran_with():
    pin = re.compile(r"^([a-z0-9-]+)==([^ ]+)", re.MULTILINE)
    tested = dict(pin.findall((ROOT / "requirements/dev.lock").read_text()))
    shipped = dict(pin.findall(LOCK.read_text()))
    assert shipped
    assert {name: tested.get(name) for name in shipped} == shipped


def test_every_line_of_the_debian_lock_has_a_version_and_a_hash():
    packages = read_lock(AMD64.lock(DEBIAN))
    assert {each.name for each in packages} >= {"python3.11-minimal", "libc6", "ca-certificates"}
    assert all(re.fullmatch(r"[0-9a-f]{64}", each.sha256) for each in packages)


def test_a_dependency_that_is_not_locked_is_refused(tmp_path):
    available = {"pileus": Wheel(_wheel(tmp_path, "pileus", "Requires-Dist: aiohttp>=3"))}
    with pytest.raises(Unavailable, match="aiohttp is needed but not in runtime.lock"):
        closure((), available)


def test_only_chosen_extras_and_markers_of_the_image_are_followed(tmp_path):
    requires = [
        'Requires-Dist: traces; extra == "otlp"',
        'Requires-Dist: winonly; sys_platform == "win32"',
    ]
    available = {
        "pileus": Wheel(_wheel(tmp_path, "pileus", *requires)),
        "traces": Wheel(_wheel(tmp_path, "traces")),
    }
    assert list(closure((), available)) == ["pileus"]
    assert list(closure(("otlp",), available)) == ["pileus", "traces"]


def test_an_unknown_extra_is_reported_with_the_known_ones(tmp_path):
    command = [sys.executable, "-m", "tools.build_image", "--extras", "labs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith('image: unknown extra "labs" (did you mean "lab"?); known: ')


def _wheel(folder: Path, name: str, *requires: str) -> Path:
    import zipfile

    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *requires, ""]
        archive.writestr(f"{name}-1.dist-info/METADATA", "\n".join(lines))
    return path
