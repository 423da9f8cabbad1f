from contextlib import asynccontextmanager

import pytest

from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.registry import (
    BrokenProvider,
    DuplicateProvider,
    Registry,
    UnknownProvider,
)
from pileus.entry_points import EntryPoint


@asynccontextmanager
async def connect(config: ProviderConfig):
    yield Cloud(name="acme")


NOT_A_FUNCTION = "text"


def offer(name: str, value: str = "json:loads", dist: str = "acme-cloud") -> EntryPoint:
    """An entry point as an installed distribution has it."""
    return EntryPoint(name, value, dist, "1.2")


def registry(*entries: EntryPoint) -> Registry:
    return Registry(lambda: entries)


def test_a_provider_is_found_by_its_entry_point():
    import json

    assert registry(offer("acme")).get("acme") is json.loads


def test_a_provider_is_registered_in_code():
    providers = registry()

    providers.register("acme", connect)

    assert providers.get("acme") is connect
    assert providers.names() == ("acme",)


@pytest.mark.parametrize("name", ["", "external"])
def test_some_names_mean_no_provider(name):
    assert registry().get(name) is None


def test_an_unknown_name_is_told_with_the_known_ones_and_the_likely_one():
    providers = registry(offer("openstack", dist="a"), offer("hetzner", dist="b"))

    with pytest.raises(UnknownProvider) as told:
        providers.get("openstakc")

    assert str(told.value) == (
        'unknown cloud provider "openstakc" (known: hetzner, openstack) (did you mean "openstack"?)'
    )


def test_the_provider_of_the_laboratory_is_told_with_how_to_install_it():
    providers = registry(offer("locale", dist="a"))

    with pytest.raises(UnknownProvider) as told:
        providers.get("local")

    assert str(told.value) == (
        'unknown cloud provider "local" (known: locale). It is part of the laboratory, which is '
        "not installed. Fix: pip install . ./lab (in a clone of the repository)"
    )


def test_an_unknown_name_is_told_when_nothing_is_installed():
    with pytest.raises(UnknownProvider, match=r'"x" \(known: none is installed\)'):
        registry().get("x")


def test_two_distributions_with_one_name_are_fatal_and_both_are_named():
    providers = registry(offer("acme", dist="acme-cloud"), offer("acme", dist="other"))

    for ask in (providers.names, providers.listing, lambda: providers.get("acme")):
        with pytest.raises(DuplicateProvider, match=r"by acme-cloud 1\.2 .* and by other 1\.2"):
            ask()


def test_registering_a_taken_name_is_fatal_and_changes_nothing():
    providers = registry(offer("acme"))

    with pytest.raises(DuplicateProvider, match=r"acme-cloud 1\.2 .* and by code \(.*connect\)"):
        providers.register("acme", connect)

    assert providers.get("acme") is not connect


def test_one_broken_provider_harms_only_itself():
    providers = registry(
        offer("bad", "no_such_module_at_all:connect [sdk]", dist="bad-cloud"),
        offer("good", dist="good-cloud"),
    )

    bad, good = providers.listing()

    assert callable(providers.get("good"))
    assert (good.name, good.problem) == ("good", "")
    assert "bad-cloud 1.2 (no_such_module_at_all:connect [sdk])" in bad.problem
    assert "ModuleNotFoundError: No module named 'no_such_module_at_all'; the module \"no_such" in (
        bad.problem
    )
    assert "pip install --force-reinstall 'bad-cloud[sdk]'" in bad.problem
    with pytest.raises(BrokenProvider, match="no_such_module_at_all"):
        providers.get("bad")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("json:no_such_name", "AttributeError", id="missing attribute"),
        pytest.param("json:__name__", "is a str, not a function", id="not callable"),
    ],
)
def test_what_is_no_function_is_told(value, text):
    with pytest.raises(BrokenProvider, match=text):
        registry(offer("acme", value)).get("acme")


async def coroutine(config: ProviderConfig) -> Cloud:
    return Cloud(name="acme")


async def generator(config: ProviderConfig):
    yield Cloud(name="acme")


@asynccontextmanager
async def without_config():
    yield Cloud(name="acme")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("coroutine", "decorate it with @contextlib.asynccontextmanager"),
        ("generator", "decorate it with @contextlib.asynccontextmanager"),
        ("without_config", "must take one argument, the ProviderConfig: too many positional"),
    ],
)
def test_a_function_that_cannot_connect_is_listed_with_the_reason(name: str, text: str):
    (listed,) = registry(offer("acme", f"{__name__}:{name}")).listing()

    assert text in listed.problem


def test_nothing_is_imported_before_it_is_asked_for():
    providers = registry(offer("bad", "no_such_module_at_all:connect"))

    assert providers.names() == ("bad",)


@pytest.mark.parametrize(
    ("source", "said", "line"),
    [
        pytest.param(
            "import json\n\nfrom json import no_such_name\n",
            "ImportError: cannot import name 'no_such_name'",
            3,
            id="import error",
        ),
        pytest.param("x = 1\ny = (\n", "SyntaxError: '\\(' was never closed", 2, id="syntax error"),
        pytest.param(
            "def made():\n    raise KeyError('region')\n\nmade()\n",
            "KeyError: 'region'",
            2,
            id="its own code",
        ),
    ],
)
def test_a_provider_that_cannot_be_loaded_shows_the_file_and_line(
    tmp_path, monkeypatch, source, said, line
):
    name = f"broken_provider_{len(source)}"
    file = tmp_path / f"{name}.py"
    file.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(BrokenProvider, match=said) as caught:
        registry(offer("bad", f"{name}:connect")).get("bad")

    assert f"(in {file}, line {line}); pip install" in str(caught.value)
