"""Write the site's pages into build/site-pages: docs/, and what lies outside it and is linked to, as pages too.

The documents link to README.md, to Python files and to folders, as a code host shows them. A site's generator knows one
folder of pages alone. So each file outside docs/ that a page links to becomes a page here, and the links are turned to
it. A link therefore works in both places, and the site needs no address of a code host.
"""

from __future__ import annotations

import argparse
import posixpath
import re
import shutil
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
OUT = REPOSITORY / "build" / "site-pages"
PAGES = {
    "README.md": "about.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "CHANGELOG.md": "changelog.md",
    "docs/README.md": "index.md",
}
"""Pages that are called something else on the site."""
REFERENCE = "reference/code.md"
"""The page that mkdocstrings writes from the code: the public names, and what gym.make, files and commands take."""
SETTINGS = (
    "toolorchestra.envs.factory.EnvSettings",
    "toolorchestra.envs.models.endpoints.Endpoint",
    "toolorchestra.envs.models.endpoints.Served",
    "toolorchestra.envs.sandbox.Bounds",
    "toolorchestra.envs.domains.questions.source.QaSource",
    "toolorchestra.envs.domains.toolscale.source.ToolScaleSource",
    "toolorchestra.envs.domains.tau2.source.Tau2Source",
    "toolorchestra.agents.commands.evaluation_setup.EvaluateOptions",
    "toolorchestra.agents.policies.base.PlayerOptions",
    "toolorchestra.agents.commands.serve.ServeOptions",
    "toolorchestra.agents.configuration.config.TrainConfig",
    "toolorchestra.agents.configuration.config.ModelConfig",
    "toolorchestra.agents.configuration.config.WarmStart",
    "toolorchestra.agents.engines.base.LossParams",
    "toolorchestra.agents.rollouts.grpo.AdvantageParams",
)
LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".json": "json",
    ".ipynb": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".cff": "yaml",
}
_CODE = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)`*\s*?$|`[^`\n]+`", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(r'\b(src|srcset|href)="([^"#]+)(#[^"]*)?"')


def prepared() -> dict[str, str]:
    """The site's pages by their path, each with its text."""
    pages = [file for file in sorted((REPOSITORY / "docs").rglob("*.md")) if "examples" not in file.parts]
    pages += [REPOSITORY / name for name in PAGES if not name.startswith("docs/")]
    made: dict[str, str] = {}
    linked: set[str] = set()
    for file in pages:
        path = file.relative_to(REPOSITORY).as_posix()
        text = file.read_text(encoding="utf-8")
        linked |= {inside for target in _targets(text) if (inside := _inside(path, target))}
        made[place_of(path)] = _turned(path, text)
    made[REFERENCE] = _reference()
    made |= {place_of(path): _source(path) for path in linked if place_of(path).startswith("source/")}
    return made


def _reference() -> str:
    """The page of the code's own names, each to be filled in from its docstrings."""
    face = (REPOSITORY / "src" / "toolorchestra" / "__init__.py").read_text(encoding="utf-8")
    imported = re.findall(r"^ *from (toolorchestra[\w.]+) import (.+)$", face, re.M)
    public = re.findall(r'^    "(\w+)",$', face, re.M)
    names = sorted(f"{place}.{name}" for place, some in imported for name in some.split(", ") if name in public)
    parts = [f"::: {name}\n" for name in (*names, *SETTINGS)]
    return "# Reference\n\n`import toolorchestra as to` has these names. Then come the settings.\n\n" + "\n".join(parts)


def place_of(path: str) -> str:
    """Where a file of the repository is on the site: a page of docs/ at its own place, another file as its source."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/") and not path.startswith("docs/examples") and (REPOSITORY / path).is_file():
        return path.removeprefix("docs/")
    unhidden = "/".join(part.removeprefix(".") for part in path.split("/"))  # what begins with a dot is left out
    return f"source/{unhidden}.md"


def _targets(text: str) -> list[str]:
    """The relative links of a page, without those that stand in code."""
    return [match[1] for match in _LINK.finditer(_CODE.sub("", text))]


def _inside(page: str, target: str) -> str | None:
    """The path in the repository that a link leads to; None for another host, and for what is not there."""
    if re.match(r"[a-z]+:", target):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    return path if not path.startswith("..") and (REPOSITORY / path).exists() else None


def _turned(page: str, text: str) -> str:
    """A page with its links turned to where they are on the site."""
    here = posixpath.dirname(place_of(page)) or "."

    def turned(target: str) -> str:
        path = _inside(page, target)
        return target if path is None else posixpath.relpath(place_of(path), here)

    def prose(part: str) -> str:
        part = _LINK.sub(lambda m: f"]({turned(m[1])}{m[2] or ''})", part)
        return _PICTURE.sub(lambda m: f'{m[1]}="{turned(m[2])}{m[3] or ""}"', part)

    pieces, last = [], 0
    for code in _CODE.finditer(text):
        pieces += [prose(text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*pieces, prose(text[last:])])


def _source(path: str) -> str:
    """A file as a page with its text; a folder as the list of what it holds."""
    place = REPOSITORY / path
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    if place.is_dir():
        return head + "\n".join(f"- `{name}`" for name in sorted(child.name for child in place.iterdir())) + "\n"
    return f"{head}``````{LANGUAGES.get(place.suffix, 'text')}\n{place.read_text(encoding='utf-8')}\n``````\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    shutil.rmtree(OUT, ignore_errors=True)
    for place, text in prepared().items():
        file = OUT / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    shutil.copytree(REPOSITORY / "docs" / "images", OUT / "images")


if __name__ == "__main__":
    main()
