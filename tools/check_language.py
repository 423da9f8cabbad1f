"""Reports words and phrases that the project does not use, in code and pages.

    python -m tools.check_language [PATH …]

Prose is plain engineering English: the words that people search for. Each entry of `WORDS` is a
pattern and what to write instead. A line that must contain such a word, for example a quotation,
ends with a comment `# language: quoted` (in Markdown: `<!-- language: quoted -->`).
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = (
    "src",
    "lab",
    "docs",
    "examples",
    "deploy",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "RELEASING.md",
    "SECURITY.md",
)
SUFFIXES = {".py", ".md", ".yaml", ".toml"}
EXCEPTION = "language: quoted"

WORDS = {
    r"mend(s|ed|ing)?": "fix, repair",
    r"anew": "again",
    r"who(m)?ever|who else": "the process, the caller, another controller",
    r"nobody|somebody": "no one, a user, another process; or name it",
    r"for ever|ever more seldom|ever later": "indefinitely, with exponential backoff",
    r"hands from outside|by hand": "manual changes, out-of-band changes, manually",
    r"as (it|they) should be|as wanted|all is well": "matches the desired state, is up to date",
    r"parted by": "comma-separated",
    r"(leave|leaves|left|leaving) alone": "not managed, ignored",
    r"look-ups?|looks? at|looked at|looks? again|(shallow|deep) look": "lookup, check, observe",
    r"(is|are|was|were|be) told|told of|tells? of|says so|said so": "report, log, publish",
    r"in the way": "blocked by",
    r"is well|is ill|are well|are ill": "is healthy, is unhealthy",
    r"bury|buried|departed|puzzled|dut(y|ies)|govern(s|ed)?": "a word of the domain",
    r"be it|thereby|befall(s)?|beneath": "a plainer word",
    r"it is no (?!longer)|there is no .* to be had": "is not a",
}
PATTERNS = [
    (re.compile(rf"\b({words})\b", re.IGNORECASE), better) for words, better in WORDS.items()
]


def findings(path: Path) -> Iterator[str]:
    """Yields one message per word that the file should not contain."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if EXCEPTION in line:
            continue
        for pattern, better in PATTERNS:
            for found in pattern.finditer(line):
                name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
                yield f'{name}:{number}: "{found.group()}": write {better}'


def files(places: list[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            yield place
        else:
            yield from (each for each in sorted(place.rglob("*")) if each.suffix in SUFFIXES)


def main() -> int:
    given = [Path(each).resolve() for each in sys.argv[1:]]
    places = given or [ROOT / each for each in PLACES if (ROOT / each).exists()]
    found = [message for path in files(places) for message in findings(path)]
    for message in found:
        print(message)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
