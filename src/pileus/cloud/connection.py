"""Reads a provider's configuration, connects it, and checks the `Cloud` that it yields."""

import inspect
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import cast, get_args, get_origin, get_type_hints

from pileus.cloud import abilities
from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import Cloud, Connect, OwnController, ProviderConfig
from pileus.cloud.model import NO_LABELS
from pileus.cloud.provider_context import entered


def capabilities() -> Mapping[str, type]:
    """Returns the fields of `Cloud` that are capabilities, each with its protocol."""
    hints = get_type_hints(Cloud)
    found = {field.name: protocol_of(hints[field.name]) for field in fields(Cloud)}
    return {name: protocol for name, protocol in found.items() if protocol is not None}


def protocol_of(hint: object) -> type | None:
    """Returns the protocol in a hint such as `Routes | None`; None if it has none."""
    plain = (get_origin(part) or part for part in get_args(hint))
    return next((part for part in plain if getattr(part, "_is_protocol", False)), None)


def methods(protocol: type) -> tuple[str, ...]:
    """Returns the names of the methods of a protocol."""
    return tuple(name for name in vars(protocol) if not name.startswith("_"))


CAPABILITIES = capabilities()


def read_config(
    path: str,
    *,
    environ: Mapping[str, str] = NO_LABELS,
    cluster_name: str = "kubernetes",
    user_agent: tuple[str, ...] = (),
) -> ProviderConfig:
    """Returns the provider's configuration, with the file of `--cloud-config` if `path` is set.

    Raises Misconfigured if the file cannot be read or is not UTF-8.
    """
    text = _read(path) if path else None
    return ProviderConfig(
        path=path, text=text, environ=environ, cluster_name=cluster_name, user_agent=user_agent
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Misconfigured(
            f'--cloud-config: cannot read "{path}": {error.strerror}; give the provider\'s own '
            "configuration file, or leave the flag out if it needs none"
        ) from error
    except UnicodeDecodeError as error:
        raise Misconfigured(
            f'--cloud-config: "{path}" is not UTF-8 text (byte {error.start}); save it as UTF-8'
        ) from error


@asynccontextmanager
async def connected(name: str, connect: Connect, config: ProviderConfig) -> AsyncGenerator[Cloud]:
    """Connects the provider and yields its cloud, after checking it with `verify`.

    Raises the provider's own CloudError; Unavailable if the provider raises another exception or
    does not answer in time; Misconfigured if it does not yield a complete `Cloud`.
    """
    failed = f'cloud provider "{name}" could not connect'
    async with entered(failed, lambda: connect(config)) as cloud:
        verify(name, cloud)
        yield cloud


def verify(provider: str, cloud: object) -> None:
    """Checks that `cloud` is a complete `Cloud`. Raises Misconfigured with all problems."""
    if not isinstance(cloud, Cloud):
        raise Misconfigured(
            f'cloud provider "{provider}" yielded {_kind(cloud)} instead of a pileus Cloud; '
            "its connect() must yield one"
        )
    problems = [*_wrong_capabilities(cloud), *_wrong_fields(cloud), *_wrong_abilities(cloud)]
    if problems:
        raise Misconfigured(f'cloud provider "{provider}" is incomplete: {"; ".join(problems)}')


def _wrong_capabilities(cloud: Cloud) -> Iterator[str]:
    """Yields each method that is missing, or that cannot be called as the contract says."""
    for name, protocol in CAPABILITIES.items():
        capability = getattr(cloud, name)
        if capability is not None:
            yield from wrong_methods(name, capability, protocol)


def wrong_methods(name: str, capability: object, protocol: type) -> Iterator[str]:
    """Yields what is wrong with the methods of a capability; `name` says which one it is."""
    place = f"{name} ({_kind(capability)})"
    for method in methods(protocol):
        given = getattr(capability, method, None)
        if not callable(given):
            yield f"{place} lacks the method {method}()"
        elif problem := wrong_form(given, getattr(protocol, method)):
            yield f"{place}: {method}() {problem}"


def wrong_form(given: Callable[..., object], expected: Callable[..., object]) -> str:
    """Returns why a method cannot be called like that of the contract; empty if it can.

    `expected` is the method of the protocol. If that is annotated to return a value or an
    awaitable, both plain and async methods are accepted. So is a method whose signature Python does
    not know, such as one written in C.
    """
    contract = inspect.signature(expected)
    wanted = [*contract.parameters.values()][1:]
    named = [one.name for one in wanted if one.kind is inspect.Parameter.KEYWORD_ONLY]
    try:
        inspect.signature(given).bind(*wanted[: len(wanted) - len(named)], **dict.fromkeys(named))
    except ValueError:
        return ""
    except TypeError as error:
        form = ", ".join(f"*, {one.name}" if one.name in named else one.name for one in wanted)
        return f"must take ({form}): {error}"
    plain = inspect.unwrap(given)
    if not inspect.isroutine(plain):
        return ""
    is_async = inspect.iscoroutinefunction(plain)
    if not inspect.iscoroutinefunction(expected):
        return "must not be `async def`" if is_async and not _may_be_awaited(expected) else ""
    return "" if is_async or _may_be_awaited(plain) else "must be `async def`"


def _may_be_awaited(function: Callable[..., object]) -> bool:
    """Returns whether a plain function may return an awaitable.

    It may if its annotation names one, or if it passes any arguments on to another function.
    """
    signature = inspect.signature(function)
    says = str(signature.return_annotation)
    passes_on = any(
        one.kind is inspect.Parameter.VAR_POSITIONAL for one in signature.parameters.values()
    )
    return passes_on or any(one in says for one in ("Awaitable", "Coroutine", "Future", "Task"))


def _wrong_fields(cloud: Cloud) -> list[str]:
    given = {field.name: cast("object", getattr(cloud, field.name)) for field in fields(cloud)}
    checks = {
        "name must be a non-empty text": _is_text(given["name"]),
        "owns must be a function or None": _is_function_or_none(given["owns"]),
        "leading must be a function or None": _is_function_or_none(given["leading"]),
        "controllers must be a tuple of OwnController, no two alike": _are_controllers(
            given["controllers"]
        ),
        "checks must be a function or None": _is_function_or_none(given["checks"]),
        "health must be a function or None": _is_function_or_none(given["health"]),
        "metrics must be a function or None": _is_function_or_none(given["metrics"]),
        "reconciled must be a function or None": _is_function_or_none(given["reconciled"]),
        "has_cluster_id must be True or False": isinstance(given["has_cluster_id"], bool),
    }
    return [text for text, is_right in checks.items() if not is_right]


def _wrong_abilities(cloud: Cloud) -> list[str]:
    """Returns the errors in `abilities`, including those for capabilities that the cloud lacks."""
    wrong = list(abilities.problems(cloud.abilities))
    if wrong:
        return wrong
    declared = cloud.abilities
    promises = {
        "marks_routes": ("routes", declared.marks_routes),
        "members_by_provider_id": ("balancers", declared.members_by_provider_id),
        "changes_while_provisioning": ("balancers", declared.changes_while_provisioning),
        "member_labels": ("balancers", bool(declared.member_labels)),
    }
    lacking = [
        f"abilities.{name} is declared, but the cloud has no {capability}"
        for name, (capability, is_promised) in promises.items()
        if is_promised and getattr(cloud, capability) is None
    ]
    return [*lacking, *_unnamed_lists(cloud)]


def _unnamed_lists(cloud: Cloud) -> Iterator[str]:
    """Yields what is wrong if a provider names its lists, but not those of its routes."""
    requests = cloud.abilities.requests
    if cloud.routes is None or requests is None or isinstance(requests.lists, int):
        return
    if not any(one.per_route for one in requests.lists):
        yield (
            "abilities.requests.lists names no list of routes, but the cloud has routes: add a "
            "PagedList with per_route"
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_function_or_none(value: object) -> bool:
    return value is None or callable(value)


def _are_controllers(value: object) -> bool:
    if not isinstance(value, tuple):
        return False
    items = cast("tuple[object, ...]", value)
    names = [item.name for item in items if isinstance(item, OwnController)]
    return len(names) == len(items) == len(set(names))


def _kind(thing: object) -> str:
    return "None" if thing is None else type(thing).__name__
