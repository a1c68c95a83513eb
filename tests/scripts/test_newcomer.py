"""The newcomer's test reads pages as a newcomer does: what is run, what is named and left out, what is compared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.newcomer import FENCE, PAGES, Hour, Surprise, commands, compare, first_episode, page
from tests.paths import REPOSITORY

READ = """
```sh title="Not run: installs packages"
make environment
echo installed > installed.txt   # with a word
```

```sh title="Options checked: needs a GPU"
exit 3
```

```python
import os
number = 6
```

It goes on:

```python
print(number * 7)
```

prints

```text
42
```

```python title="Not run: one line"
1 / 0
```

```sh
cd deeper
echo 'two
lines' > here.txt
toolorchestra train
```
"""


@pytest.fixture
def hour(tmp_path: Path) -> Hour:
    """One with a Python where a clone's environment has it."""
    made = Hour(tmp_path)
    (made.clone / "deeper").mkdir(parents=True)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    return made


def read(hour: Hour, text: str) -> None:
    (hour.clone / "page.md").write_text(text)
    page(hour, "page.md", hour.folder / "venv")


def test_a_page_is_done_as_it_is_written(hour: Hour, capsys: pytest.CaptureFixture[str]) -> None:
    read(hour, READ)
    assert (hour.clone / "installed.txt").read_text() == "installed\n"
    assert (hour.clone / "deeper" / "here.txt").read_text() == "two\nlines\n"
    assert hour.first_bill > 0
    left_out = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert [line.split("(")[1].rstrip(")") for line in left_out] == [
        "sets up an environment with torch", "Options checked: needs a GPU", "Not run: one line", "needs torch",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("\n42\n", "\n43\n", "page.md shows the line\n43\nwhich was not printed"),
        ("cd deeper", "cd deeper\nfalse", "exit code 1"),
        ("cd deeper", "cd deeper\necho beware >&2", "beware"),
        ("number * 7", "numbers", "NameError"),
    ],
)
def test_what_differs_from_the_page_is_a_surprise(hour: Hour, old: str, new: str, told: str) -> None:
    with pytest.raises(Surprise, match=told):
        read(hour, READ.replace(old, new))


def test_a_short_tables_rows_have_their_names(hour: Hour) -> None:
    shown = "policy       n  known\nrandom     300    300\n"
    with pytest.raises(Surprise):
        compare(hour, "page.md", "policy n known\nrandom 20 20\n", shown)
    hour.short = True
    compare(hour, "page.md", "policy n known\nrandom 20 20\n", shown)
    with pytest.raises(Surprise, match="random"):
        compare(hour, "page.md", "policy n known\n", shown)


def test_the_pages_that_are_read_have_what_is_run() -> None:
    for name in PAGES:
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        blocks = FENCE.findall(text)
        assert 2 * len(blocks) == text.count("\n```"), f"{name}: a fence that no block was read from"
        assert any(kind == "python" and not title for kind, title, _ in blocks) or "own-tools" in name
    assert first_episode((REPOSITORY / "README.md").read_text(encoding="utf-8")).startswith("import gymnasium")
    assert commands("a \\\n  b\nc   # why\n\nd 'x\ny'") == ["a \\\n  b", "c", "d 'x\ny'"]
