"""Writes the OpenAPI document, or compares it with the one that is committed.

python -m app.api.export [--check] openapi/openapi.json
"""

import argparse
import difflib
import json
import sys
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Final, cast

from app.api.app import create_api
from app.api.deps import ApiServices

_MOST_LINES: Final = 40


def current() -> str:
    """Return the document as the code has it now."""
    # The document needs the routes, not what they use when they are served.
    nothing = cast("ApiServices", None)
    document = create_api(nothing, version("surefoot")).openapi()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or compare; return the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m app.api.export", description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--check", action="store_true", help="compare only; 1 when they differ")
    options = parser.parse_args(arguments)
    path: Path = options.path
    text = current()
    if not options.check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return 0
    committed = path.read_text(encoding="utf-8") if path.exists() else ""
    if committed == text:
        return 0
    lines = difflib.unified_diff(
        committed.splitlines(), text.splitlines(), "committed", "code", lineterm="", n=1
    )
    shown = "\n".join(islice(lines, _MOST_LINES))
    sys.stderr.write(f"{path} is not what the code says; run `make openapi`.\n{shown}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
