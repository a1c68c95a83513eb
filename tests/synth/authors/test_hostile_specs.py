"""Specs that were written to fill the memory, to take for ever, to read the clock or to get out of the fence: each is
refused by one sentence that names the part at fault, within 20 seconds and a gigabyte.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.support.hostile_specs import HOSTILE, Parts
from tests.synth import runs
from toolorchestra.synth import make_domain
from toolorchestra.synth.stages import limited_work, pipeline, written_parts

MOST_SECONDS = 20.0
MOST_KILOBYTES = 1 << 20
ENDED_BY_THE_CLOCK = {"rows: everything with everything", "intents: many"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_parts, "CHECK_SECONDS", 10.0)
    monkeypatch.setattr(pipeline, "TASKS_SECONDS", 10.0)


def spent() -> float:
    """Seconds of the processor, of this process and of those that ended: a busy machine is no fault of the fence."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def spec_of(folder: Path, parts: Parts) -> Path:
    """A spec's folder."""
    folder.mkdir()
    for name, text in parts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_the_spec_that_is_spoilt_below_is_good_as_it_is(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "spec", runs.texts())
    assert make_domain.main([str(spec), "--out", str(tmp_path / "out"), "--tasks", "10"]) == 0


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_spec_is_refused_by_a_sentence_that_names_its_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, seen = HOSTILE[name]
    if name in ENDED_BY_THE_CLOCK:
        monkeypatch.setattr(written_parts, "CHECK_SECONDS", 2.0)
    parts = runs.texts()
    before = dict(parts)
    change(parts)
    assert parts != before
    spec = spec_of(tmp_path / "spec", parts)
    started, began = spent(), time.monotonic()
    assert make_domain.main([str(spec), "--out", str(tmp_path / "out"), "--tasks", "10"]) == 2
    took = min(spent() - started, time.monotonic() - began)  # the processor's may have those of a process before
    *_, told = re.split(r"(?m)^error: ", said := capsys.readouterr().err)  # YAML's own show the place in lines below
    assert told != said
    assert re.search(seen, told), told
    assert took < MOST_SECONDS
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*.db"))


def test_a_file_of_a_gigabyte_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_of(tmp_path / "spec", runs.texts())
    with (spec / "policy.md").open("r+b") as file:
        file.truncate(1 << 30)
    assert make_domain.main([str(spec), "--out", str(tmp_path / "out")]) == 2
    assert "policy.md: 1073741824 bytes, at most 16777216 are read" in capsys.readouterr().err


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux bounds the memory of a process, and says how much it had"
)
def test_the_memory_of_the_process_is_bounded() -> None:
    """Also where no bound of SQLite's own holds. Measured where nobody else has started processes."""
    code = f"from {__name__} import peak_of_greedy; print(peak_of_greedy())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert 1000 < int(done.stdout) < MOST_KILOBYTES


def peak_of_greedy() -> int:
    """Kilobytes that the limited process had at most, before it was ended for asking for more."""
    with pytest.raises(limited_work.TooMuch, match="512 MiB"):
        limited_work.SHARED.run(greedy, seconds=20)
    limited_work.SHARED.end()
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def greedy() -> int:
    """Two gigabytes, and none of it is SQLite's."""
    return len([bytearray(1 << 20) for _ in range(2048)])


def test_work_that_takes_too_long_is_ended_and_the_next_goes_on() -> None:
    with pytest.raises(limited_work.TooMuch, match=r"the spec takes longer than 0\.5 s"):
        limited_work.SHARED.run(time.sleep, 30, seconds=0.5)
    assert limited_work.SHARED.run(len, [1, 2], seconds=20) == 2
    with pytest.raises(KeyError):
        limited_work.SHARED.run(dict.__getitem__, {}, "x", seconds=20)
    assert limited_work.SHARED.run(len, [1], seconds=20) == 1
