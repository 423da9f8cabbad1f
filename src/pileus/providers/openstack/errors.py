"""Errors of OpenStack's services as the errors of the cloud contract. Pure.

Every service describes faults in a form of its own: Nova and Cinder
`{"forbidden": {"message": …}}`, Neutron `{"NeutronError": {"type": …, "message": …}}`, Octavia
`{"faultstring": …}`, Keystone `{"error": {"message": …}}`, Barbican `{"description": …}`.
"""

import json
import re
from collections.abc import Mapping
from http.client import responses
from typing import Any, cast

from pileus.cloud.errors import (
    CloudError,
    Conflict,
    NotFound,
    QuotaExceeded,
    Throttled,
    Unauthorized,
    Unavailable,
)
from pileus.cloud.http import LONGEST, Answer, message_of, retry_after, without_ids

_QUOTA = re.compile(
    r"quota (has been met|exceeded|limit)|exceeded for quota|over ?quota"
    r"|exceeds? (the |your |allowed \S+ )?quota|quota for \S+ exceeded"
    r"|maximum number of \S+ allowed|maximum allowed number of|limit ?exceeded"
    r"|no more ip addresses"
    r"|addresses? available .* exhausted",
    re.IGNORECASE,
)
_EXHAUSTED = frozenset({
    "OverQuota",
    "QuotaResourceUnknown",
    "IpAddressGenerationFailure",
    "IpAddressGenerationFailureAllSubnets",
    "IpAddressGenerationFailureNoMatchingSubnet",
    "ExternalIpAddressExhausted",
    "NoMoreFreeAddresses",
})
"""Types of `NeutronError` that mean: free something, or raise the limit."""
_UNAUTHENTICATED, _FORBIDDEN, _CONFLICT, _TOO_LARGE = 401, 403, 409, 413
_LIMITED = frozenset({_FORBIDDEN, _CONFLICT, _TOO_LARGE})
"""Statuses with which services refuse what exceeds a quota."""


class TokenRefused(Unauthorized):
    """The token expired or was revoked, or the credentials are wrong (401)."""


class NotOfService(Unavailable):
    """A 404 that the service did not send: it says nothing about the object that was asked for.

    Proxies answer so while the service behind them is replaced, and so does any other server to
    which a wrong endpoint leads.
    """


def error_of(answer: Answer, usual: CloudError) -> CloudError:
    """Returns the error for an answer of an OpenStack service; `usual` fits its status."""
    kind, message = fault_of(answer)
    text = answer.described(message or responses.get(answer.status, ""))
    if answer.status == _UNAUTHENTICATED:
        return TokenRefused(text)
    if answer.status in _LIMITED and (kind in _EXHAUSTED or _QUOTA.search(message)):
        return QuotaExceeded(text)
    if answer.status == _TOO_LARGE and retry_after(answer) is not None:
        return Throttled(text, retry_after=retry_after(answer))
    if answer.status == _FORBIDDEN:
        return Unauthorized(f"{text}{_missing_role(answer)}")
    if isinstance(usual, Throttled):
        return Throttled(text, retry_after=usual.retry_after)
    return Conflict(text) if _is_immutable(answer.status, message) else _worded(usual, text, answer)


def _worded(usual: CloudError, text: str, answer: Answer) -> CloudError:
    if isinstance(usual, NotFound) and not _is_of_service(answer):
        return NotOfService(
            f"{text}. This is not an answer of the service: check the proxy in front of it, and "
            "its endpoint in the catalogue"
        )
    return type(usual)(text)


def fault_of(answer: Answer) -> tuple[str, str]:
    """Returns the type of the fault, if the service names one, and its message in one line."""
    try:
        body: Any = json.loads(answer.body)
    except (ValueError, RecursionError):
        return "", message_of(answer)
    kind, message = _described(body)
    line = " ".join(without_ids(message).split())
    return kind, f"{line[:LONGEST]}…" if len(line) > LONGEST else line or message_of(answer)


def _is_of_service(answer: Answer) -> bool:
    """Returns whether the fault has one of the forms of OpenStack's services."""
    try:
        body: Any = json.loads(answer.body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(body, dict):
        return False
    named = cast("Mapping[str, object]", body)
    if "message" in named:  # gateways, and services that do not know the path
        return False
    return bool(_described(named)[1])


def _described(body: object) -> tuple[str, str]:
    if not isinstance(body, dict):
        return "", ""
    named = cast("Mapping[str, object]", body)
    for key in ("faultstring", "description", "message"):
        if isinstance(named.get(key), str):
            return "", str(named[key])
    for key, inner in named.items():
        if isinstance(inner, dict):
            fault = cast("Mapping[str, object]", inner)
            return str(fault.get("type") or key), str(fault.get("message") or "")
        if key == "NeutronError":
            return "", str(inner)
    return "", ""


def _is_immutable(status: int, message: str) -> bool:
    """Octavia refuses changes while it is busy with the load balancer: it is not invalid."""
    return status < 500 and "is immutable and cannot be updated" in message  # noqa: PLR2004


def _missing_role(answer: Answer) -> str:
    if "/lbaas/" not in answer.request.url:
        return ". Fix: give the user of [Global] the role that this request needs"
    return ". Fix: give the user of [Global] the role load-balancer_member in its project"
