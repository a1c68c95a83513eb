"""The page of a training run: what it says, that texts stay texts, that it has a bound, and how it looks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.agents.reports.chromium import CHROMIUM, Chromium
from tests.agents.reports.recorded_runs import record
from toolorchestra.agents.commands import report as report_command
from toolorchestra.agents.reports.report_data import last_group, read_report, some_tested
from toolorchestra.agents.reports.report_page import report_page
from toolorchestra.agents.training.sessions import SESSIONS
from toolorchestra.envs.wrappers import read_trajectories

HOSTILE = '"><script>globalThis.ran=1</script><img src=x onerror=globalThis.ran=1>'
PLAYERS = {"policy": (0.6, 0.64, 3.1), "cheapest": (0.4, 0.47, 0.7), "strongest": (0.42, 0.72, 12.4),
           "oracle": (0.65, 0.7, 4.6)}  # fmt: skip


def standing(name: str) -> dict[str, Any]:
    reward, accuracy, cents = PLAYERS[name]
    ends = {"reward": [reward - 0.05, reward + 0.05], "accuracy": [accuracy - 0.04, accuracy + 0.04],
            "cents": [cents * 0.8, cents * 1.2]}  # fmt: skip
    return {"reward": reward, "accuracy": accuracy, "cents": cents, "cents_per_solved": cents / accuracy,
            "seconds": 80.0, "calls": {"search-1": 1.2}, "tasks": 400, "intervals": ends}  # fmt: skip


def made_run(folder: Path, steps: int = 40, name: str = "tiny", seed: int = 0) -> Path:
    """A run's folder with a report, as training leaves it."""
    share = {"value": 0.9, "low": 0.84, "high": 0.97}
    wish = {"policy": standing("policy"), "oracle": standing("oracle"), "of_oracle": share}
    probe = {"name": f"price {name}", "left": "cheap", "right": "dear", "left_rate": 0.8, "right_rate": 0.1,
             "shift": -0.7}  # fmt: skip
    summary = {"simulated": True, "preset": name, "seed": seed, "steps": steps, "best_step": steps, "of_oracle": share,
               "by_wish": {f"frugal {name}": wish}, "failed": 0, "valid": 1.0,
               "standings": {one: standing(one) for one in PLAYERS},
               "by_environment": {f"ToolOrchestra/HLE-v0{name}": {one: standing(one) for one in PLAYERS}},
               "probes": [probe], "configuration": {"preset": name}}  # fmt: skip
    (folder / "report").mkdir(parents=True)
    (folder / "report" / "summary.json").write_text(json.dumps(summary))
    rows: list[dict[str, Any]] = [{"kind": "warm", "step": n, "loss": 4.0 / (n + 1)} for n in range(steps)]
    for step in range(steps + 1):
        rows.append({"kind": "train", "step": step, "regret": 0.1 - step / steps / 10, "cents": 3.0 + step % 3,
                     "accuracy": 0.5, "time/step": 3.0, "time/sampling": 2.0, "time/training": 1.0})  # fmt: skip
        if step % (steps // 4) == 0:
            mine = {
                f"{one}/{key}": PLAYERS[one][k]
                for one in PLAYERS
                for k, key in enumerate(("reward", "accuracy", "cents"))
            }
            rows.append({"kind": "eval", "step": step, **mine, "policy/reward_low": 0.5, "policy/reward_high": 0.7,
                         "policy/cents": 4.0 - step / steps, "policy/calls/search-1": 2.0,
                         f"wish/frugal {name}/reward": 0.4 + step / steps / 10})  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    began = {
        "began": 1.7e9,
        "version": "9.8.7",
        "machine": "Fast CPU, 2 cores",
        "size": {"parameters": 196_864, "trained": 196_864},
    }
    (folder / SESSIONS).write_text(json.dumps(began) + "\n" + json.dumps({"ended": 1.7e9 + 600}) + "\n")
    return folder


def with_episodes(folder: Path) -> Path:
    """Beside it real episodes: two right or wrong ones of the test and one that failed, and a group of training."""
    file = record(folder / "made.jsonl", "HLE-v0", "cheapest", [1, 2, 3, 4], split="test")
    lines: list[dict[str, Any]] = list(read_trajectories(file))
    lines[0]["outcome"]["value"], lines[1]["outcome"]["value"] = 1.0, 0.0
    lines[3] |= {"outcome": None, "failed": {"where": "sampler", "error": f"Outage: gone {HOSTILE}"}}
    for line in lines:
        line["messages"][1]["content"] += HOSTILE
        line["charges"][0]["item"] += HOSTILE
    (folder / "report" / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for place, line in enumerate(lines):
        line["training"] = {"step": 10, "group": 0, "rollout": place, "reward": 0.5, "spread": 0.2,
                            "advantage": 1.0 - place,
                            "left_out": ""}  # fmt: skip
    lines[3]["training"] |= {"reward": None, "advantage": None, "left_out": "the episode failed"}
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


class _Tags(HTMLParser):
    """The elements of a page, and every address that it names."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_the_page_says_what_it_is_of_and_how_it_was_made(tmp_path: Path) -> None:
    page = report_page(read_report(made_run(tmp_path / "run")))
    for words in ("Simulated", "196,864, all trained", "10 min", "2023-11-14 22:13 UTC", "Fast CPU, 2 cores",
                  "toolorchestra 9.8.7", "solves 64.0%", "90.0% [84.0%, 97.0%]", "60.0% to 68.0%", "Before and after",
                  "Regret in training", "Held-out reward by wish", "Where the time of a step went"):  # fmt: skip
        assert words in page, words


def test_a_run_that_an_earlier_version_began_does_not_claim_its_duration(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    began = json.loads((run / SESSIONS).read_text().splitlines()[0])
    (run / SESSIONS).write_text(json.dumps({**began, "step": 40}) + "\n")
    assert "not recorded up to step 40" in report_page(read_report(run))
    (run / SESSIONS).unlink()
    assert "not recorded by the version that trained it" in report_page(read_report(run))


def test_texts_stay_texts_and_nothing_is_loaded(tmp_path: Path) -> None:
    page = report_page(read_report(with_episodes(made_run(tmp_path / "run", name=f"odd {HOSTILE}"))))
    found = _Tags()
    found.feed(page)
    assert not found.tags & {"script", "img", "link", "iframe"}
    assert set(found.addresses) <= {"trajectories.html", "trajectories.html#view=trials&outcome=wrong", "../page.html"}
    assert "&lt;script&gt;" in page


def test_failures_are_shown_with_a_bill_for_each_turn(tmp_path: Path) -> None:
    run = with_episodes(made_run(tmp_path / "run"))
    page = report_page(read_report(run))
    episodes = page.split('<details class="episode">')[1:]
    assert "✗ wrong" in episodes[0]
    assert any("! failed" in one and "Outage: gone" in one for one in episodes)
    line = some_tested(run / "report" / "trajectories.jsonl", 1)[0]
    first = sum(charge["nano_usd"] for charge in line["charges"] if charge["turn"] == 1)
    assert f"turn 1: {first / 1e7:.3g} ¢" in episodes[0]
    assert "taught nothing: the episode failed" in page
    assert len(last_group(run / "rollouts.jsonl")) == 4


def test_the_size_does_not_grow_with_the_run(tmp_path: Path) -> None:
    sizes = [len(report_page(read_report(made_run(tmp_path / str(steps), steps)))) for steps in (1_000, 10_000)]
    assert sizes[1] < 1.05 * sizes[0] < 400_000


def test_several_runs_are_one_page_and_one_run_is_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [made_run(tmp_path / f"run{seed}", seed=seed) for seed in (0, 1)]
    assert report_command.main([*map(str, runs), "--page", str(tmp_path / "all.html")]) == 0
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    assert "2 training runs" in page
    assert page.count("run0") == page.count("run1") > 3
    assert "| share of the oracle's reward | 90.0% | 90.0% |" in capsys.readouterr().out
    assert report_command.main([str(runs[0]), "--page", str(tmp_path / "one.html")]) == 0
    assert (tmp_path / "one.html").read_text(encoding="utf-8") == report_page(read_report(runs[0]))
    assert report_command.main([str(runs[0]), "--page", str(tmp_path)]) == 2


# -- in a browser ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_all_of_it_in_light_and_dark(browser: Chromium, tmp_path: Path, dark: bool) -> None:
    page = tmp_path / "index.html"
    page.write_text(report_page(read_report(with_episodes(made_run(tmp_path / "run")))), encoding="utf-8")
    browser.complaints.clear()
    browser.dark(dark)
    for width in (390, 1280):
        browser.size(width, 900)
        browser.navigate(page)
        browser.until("document.URL !== 'about:blank' && document.readyState === 'complete'")
        browser.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert browser.value("document.documentElement.scrollWidth") <= width
        cut = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).length"
        assert browser.value(cut) == 0
        outside = (
            "[...document.querySelectorAll('svg text')].filter((one) => { const a = one.getBoundingClientRect(), "
            "b = one.closest('svg').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1; })"
            ".map((one) => one.textContent)"
        )
        assert browser.value(outside) == []
    colour = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 200) is dark
    assert browser.complaints == []
