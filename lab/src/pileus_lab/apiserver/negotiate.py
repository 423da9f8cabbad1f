"""Which form of an answer a client wants, from its Accept header."""

from dataclasses import dataclass, field
from functools import lru_cache

from pileus_lab.apiserver import problem

OFFERED = ("application/json", "application/json;stream=watch")
FORMS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
ANY = frozenset({"*/*", "application/*", "application/json"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Objects as they are (""), as a Table, or their metadata alone."""

    form: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


@lru_cache(64)
def choose(accept: str) -> Wanted:
    """Return the first form that there is. Errors: `Problem` 406."""
    if not accept:
        return Wanted()
    for part in accept.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        if media.lower() not in ANY:
            continue
        parameters = {key: value for key, _, value in (p.partition("=") for p in rest)}
        form = parameters.get("as", "")
        if not form:
            return Wanted("", parameters)
        if form in FORMS and parameters.get("v", "v1") == "v1":
            return Wanted(form, parameters)
    raise problem.not_acceptable(OFFERED)
