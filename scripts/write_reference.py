"""Write docs/reference from the code: arguments, keys, options, settings, docstrings and error texts.

python scripts/write_reference.py            # writes the pages
python scripts/write_reference.py --check    # says which are out of date, and ends with 1

The pages are committed. So they can be read beside the code where there is no site, a change of an option is seen in
review, and the site is built without the package. A test runs the check.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from reference_pages import api, commands, environments, errors, files

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "gym-make.md": environments.gym_make,
    "preferences.md": environments.preferences,
    "info.md": environments.info,
    "wrappers.md": environments.wrappers,
    "files.md": files.files,
    "training-configuration.md": commands.training_configuration,
    "command-line.md": commands.command_line,
    "python-api.md": api.python_api,
    "errors.md": errors.errors,
}


def out_of_date(folder: Path = FOLDER) -> dict[Path, str]:
    """The pages whose file is missing or says something else, with what they should say."""
    made = {folder / name: page() for name, page in PAGES.items()}
    return {file: text for file, text in made.items() if not file.exists() or file.read_text(encoding="utf-8") != text}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where a page is out of date")
    check = parser.parse_args().check
    old = out_of_date()
    for file, text in old.items():
        if not check:
            file.write_text(text, encoding="utf-8")
        print(f"{file}: {'out of date; run python scripts/write_reference.py' if check else 'written'}")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
