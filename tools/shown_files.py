"""Put files into the pages that show them: `python -m tools.shown_files`.

A page shows a file by a comment `<!-- file: deploy/rbac.yaml -->` right above a code block.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs"
SHOWN = re.compile(r"^<!-- file: (\S+) -->\n```(\w+)\n.*?^```$", re.MULTILINE | re.DOTALL)


def renewed(page: str) -> str:
    """The page with every file that it shows as the file is now."""
    return SHOWN.sub(_block, page)


def _block(found: re.Match[str]) -> str:
    name, language = found.groups()
    content = (ROOT / name).read_text(encoding="utf-8")
    return f"<!-- file: {name} -->\n```{language}\n{content}```"


def main() -> int:
    for page in sorted(PAGES.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if SHOWN.search(text):
            page.write_text(renewed(text), encoding="utf-8")
            sys.stdout.write(f"wrote {page.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
