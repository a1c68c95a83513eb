"""The page as a browser shows it: figures, filters, keys, addresses, and texts that try to be more than texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.agents.reports.chromium import CHROMIUM, Chromium
from tests.agents.reports.recorded_runs import record, record_service, run_folder, training_run, with_episodes
from tests.agents.reports.test_page import HOSTILE, copied
from toolorchestra.agents.evaluation.rows import MANIFEST, ROWS, SEAL, TRAJECTORIES, EvaluationRow, line_of, read_rows
from toolorchestra.agents.evaluation.summary import summarise
from toolorchestra.agents.reports.page import write_page, write_page_of_runs
from toolorchestra.agents.reports.training_data import MINE
from toolorchestra.envs.domains.questions.datasets import Dataset
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.tools.backends import Backing, read

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
TASKS = 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real episodes; of the oracle's on HLE-v0 one failed, one was cut, one is half right and thinks aloud."""
    plain = run_folder(tmp_path_factory.mktemp("runs") / "plain", TASKS)
    keys = [list(row.key) for row in read_rows(plain) if (row.env, row.policy) == ("HLE-v0", "oracle")]
    return copied(plain, plain.parent / "mixed", lambda line: mix(line, keys))


def mix(line: dict[str, Any], keys: list[list[Any]]) -> None:
    row = "status" in line
    key = [line[name] for name in ("env", "split", "policy", "task", "trial")] if row else line["key"]
    place = keys.index(key) if key in keys else None
    if row and place == 0:
        line.update(status="failed", right=None, failure="grade: KeyError: 'x'")
    elif row and place == 1:
        line.update(status="cut", right=None, truncated_by="spend_cap")
    elif row and place == 2:
        line.update(right=0.5, nano_usd_by_role={**line["nano_usd_by_role"], "judge": 7_000_000})
    elif place == 2:
        turn = line["messages"][2]
        turn["content"] = f"<think>I wonder.</think>Beside. {turn['content']}"


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    return write_page(run).file


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as opened:
        yield opened


@pytest.fixture
def tab(browser: Chromium) -> Iterator[Chromium]:
    """The window, which must not have complained when the test is over."""
    browser.complaints.clear()
    browser.size(1280, 900)
    yield browser
    assert browser.complaints == []


def texts(tab: Chromium, selector: str) -> list[str]:
    found = tab.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")
    return [str(one) for one in found]


def count(tab: Chromium) -> int:
    """How many trials the list says it has."""
    return int(texts(tab, "#count")[0].split()[0].replace(",", ""))


def shown(tab: Chromium, task: str) -> None:
    """Wait until this task's transcript is there."""
    tab.until(f"document.querySelector('.trial-head .task')?.textContent === {json.dumps(task)}")


SELECTED = (
    "document.querySelector('.row[aria-selected=true] .task')?.textContent === "
    "document.querySelector('.trial-head .task')?.textContent"
)
"""The transcript of the selected row is there."""


def address(**state: str) -> str:
    return urlencode({"view": "trials", **state})


# -- figures -----------------------------------------------------------------------------------------------------------


def test_the_figures_are_those_of_the_rows(tab: Chromium, page: Path, run: Path) -> None:
    tab.open(page, "scope=HLE-v0+%C2%B7+test")
    rows = [row for row in read_rows(run) if (row.env, row.policy) == ("HLE-v0", "oracle")]
    known = [row for row in rows if row.right is not None]
    accuracy = sum(row.right or 0 for row in known) / len(known)
    cells = tab.value("[...document.querySelectorAll('tr')].find((r) => r.textContent.startsWith('oracle')).innerText")
    low = sum(row.right or 0 for row in rows) / len(rows)
    assert f"{accuracy:.1%}" in cells
    assert f"bounds {100 * low:.1f} to {100 * (low + 2 / TASKS):.1f}" in cells
    assert [row.right for row in known] == [0.5]
    assert cells.split("\t")[3] == "–"  # ¢ a solved trial
    assert "1 failed" in cells
    assert "1 cut" in cells


def test_the_interval_the_front_and_the_tails_are_right(tab: Chromium, tmp_path: Path) -> None:
    """Wilson's interval of 3 out of 4 is 0.301 to 0.954."""
    played = {"expensive": (5, [1, 1, 1, 1]), "good": (1, [1, 1, 1, 0]), "beaten": (2, [1, 1, 0, 0])}
    rows = [
        EvaluationRow("E", "test", policy, f"t{n}", 0, 0, "ended", float(right), turns=1, elapsed_ns=(n + 1) * NANO,
                      nano_usd_by_role={"expert": cents * 10_000_000, "user": 10_000_000})
        for policy, (cents, outcomes) in played.items()
        for n, right in enumerate(outcomes)
    ]  # fmt: skip
    (tmp_path / ROWS).write_bytes(b"".join(map(line_of, rows)))
    tab.open(write_page(tmp_path).file)
    found = dict(
        zip(texts(tab, "tbody th .link"), texts(tab, "tbody th .link + small, tbody th:not(:has(small))"), strict=True)
    )
    assert found == {"expensive": "on the front", "good": "on the front", "beaten": "beaten"}
    assert "75.0%30 to 95" in texts(tab, "tbody td:nth-child(2)")
    planned = [["E", "test", policy, 6 if policy == "good" else 4] for policy in played]
    (tmp_path / MANIFEST).write_text(json.dumps({"planned": planned}))
    tab.open(write_page(tmp_path).file, "scope=E+%C2%B7+test")
    assert "75.0%30 to 95bounds 50.0 to 83.3" in texts(tab, "tbody td:nth-child(2)")
    assert texts(tab, "tbody td:nth-child(7)") == ["4", "42 not played", "4"]
    assert texts(tab, "tbody td:nth-child(4)") == ["5 ¢", "1.33 ¢", "4 ¢"]
    assert "p50 2.5 s · p95 3.85 s · max 4 s" in texts(tab, "svg text.small")


def test_intervals_are_those_of_the_tables_with_several_trials_and_long_tails(tab: Chromium, tmp_path: Path) -> None:
    rows = [
        EvaluationRow(env, "test", "p", f"t{n}", trial, 0, "ended", float(n % 3 > 0), turns=1, elapsed_ns=NANO,
                      nano_usd_by_role={"expert": 2**n * 1_000_000 * (trial + 1)})
        for env in ("E", "F") for n in range(8) for trial in range(2)
    ]  # fmt: skip
    (tmp_path / ROWS).write_bytes(b"".join(map(line_of, rows)))
    file = write_page(tmp_path).file
    for env, both in (("E", False), ("", True)):
        tab.open(file, f"scope={env}+%C2%B7+test" if env else "")
        counted = [replace(row, env="E", task=row.env + row.task) for row in rows if both or row.env == env]
        (figures,) = summarise(counted).policies
        assert figures.cents is not None
        low, high = figures.cents.interval.low, figures.cents.interval.high
        mean, *ends = texts(tab, "tbody td:nth-child(3)")[0].replace("¢", " ").replace("to", " ").split()
        assert [float(mean), *map(float, ends)] == pytest.approx([figures.cents.mean, low, high], rel=0.01)
        share = figures.accuracy.interval
        assert texts(tab, "tbody td:nth-child(2)")[0].endswith(f"{100 * share.low:.0f} to {100 * share.high:.0f}")


# -- the list ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, 8 * TASKS),
        ({"env": "HLE-v0 · test", "policy": "oracle"}, TASKS),
        ({"outcome": "failed"}, 1),
        ({"outcome": "partly"}, 1),
        ({"cause": "stopped by spend_cap"}, 1),
        ({"q": "keyerror ORACLE"}, 1),
        ({"policy": "nobody"}, 0),
    ],
)
def test_filters_leave_what_they_say(tab: Chromium, page: Path, state: dict[str, str], expected: int) -> None:
    tab.open(page, address(**state))
    assert count(tab) == expected
    for name, value in state.items():
        assert tab.value(f"document.querySelector('[name={name}]').value") == value


PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def test_a_question_s_picture_is_shown(tab: Chromium, tmp_path: Path) -> None:
    (tmp_path / "hle.jsonl").write_text(json.dumps({"id": "a", "question": "What?", "answer": "b", "image": PIXEL}))
    spec = Dataset(str(tmp_path / "hle.jsonl"), images="take")
    file = tmp_path / "runs.jsonl"
    record(file, "HLE-v0", "random", [0], dataset=spec, backends=Backing(read(index="embedded")), split="all")
    tab.open(write_page(file).file)
    tab.key("2")
    tab.key("j")
    tab.until("document.querySelector('.opening img.picture')?.naturalWidth === 1")
    assert tab.value("document.querySelector('.opening img.picture').src") == PIXEL


# -- a transcript ------------------------------------------------------------------------------------------------------


def test_keys_go_through_the_trials(tab: Chromium, page: Path, run: Path) -> None:
    rows = list(read_rows(run))
    tab.open(page)
    tab.key("2")
    for key, place in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
        tab.key(key)
        shown(tab, rows[place].task)
        assert tab.value("document.querySelector('.row[aria-selected=true]').id") == f"row-{place}"
    tab.key("?")
    assert tab.value("document.getElementById('help').open")
    tab.key("j")  # not while the list of keys is open
    tab.key("Escape")
    tab.until("!document.getElementById('help').open")
    assert texts(tab, ".trial-head .task") == [rows[1].task]
    tab.key("1")
    assert not tab.value("document.getElementById('figures').hidden")
    tab.open(page)
    tab.key("j")  # from the figures too
    shown(tab, rows[0].task)


def test_an_address_opens_the_trial_and_its_filters(tab: Chromium, page: Path, run: Path) -> None:
    row = next(row for row in read_rows(run) if row.right == 0.5)
    tab.open(page, address(policy="oracle", at="|".join(map(str, row.key))))
    shown(tab, row.task)
    assert count(tab) == 2 * TASKS
    assert texts(tab, ".thought pre") == ["I wonder."]
    assert texts(tab, ".said pre") == ["Beside."]
    assert texts(tab, ".pair pre") == [row.evidence["expected"], row.evidence["answer"]]
    assert len(texts(tab, ".turn")) == row.turns
    tab.value(f"location.hash = {json.dumps(address(outcome='cut'))}")
    tab.until("document.querySelector('#count').textContent.startsWith('1 of')")


def test_the_running_bill_ends_at_the_whole_bill(tab: Chromium, page: Path, run: Path) -> None:
    row = next(row for row in read_rows(run) if row.policy == "strongest")
    tab.open(page, address(at="|".join(map(str, row.key))))
    shown(tab, row.task)
    last = texts(tab, ".turn .bill b")[-1]
    assert last == f"{float(f'{row.nano_usd / 1e7:.3g}'):g} ¢"
    charged = [json.loads(line) for line in (run / TRAJECTORIES).read_text().splitlines()]
    (line,) = (one for one in charged if one["key"] == list(row.key))
    assert len(texts(tab, ".charges li")) == len(line["charges"])
    tab.key("n")
    assert tab.value("document.activeElement.getAttribute('aria-label')") == "Turn 1"


def test_turns_that_cannot_be_read_and_users_are_shown_as_they_are(tab: Chromium, tmp_path: Path) -> None:
    path = record_service(tmp_path / "service.jsonl", "Which order?", "<tool_call>{broken", "Goodbye.")
    tab.open(write_page(path).file, "view=trials")
    tab.key("j")
    tab.until("document.querySelectorAll('.turn').length >= 2")
    assert texts(tab, ".turn:first-of-type .said pre, .turn .said pre")[0] == "Which order?"
    assert texts(tab, ".call pre") == ["{broken"]
    assert "user" in texts(tab, ".turn .result.user h4")


# -- training runs -----------------------------------------------------------------------------------------------------


CUT_OFF = (
    "[...document.querySelectorAll('svg text')].filter((one) => { const a = one.getBoundingClientRect(), "
    "b = one.closest('svg').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1; })"
    ".map((one) => one.textContent)"
)


def test_tables_sort_policies_are_chosen_and_three_transcripts_are_named(
    tab: Chromium, run: Path, tmp_path: Path
) -> None:
    """On a page of two evaluations, and on a phone, whose first cards are the story."""
    other = shutil.copytree(run, tmp_path / "other")
    tab.size(390, 844)
    tab.open(write_page_of_runs([run, other], tmp_path / "both.html").file)
    assert tab.value("document.documentElement.scrollWidth") <= 390
    tops = "[...document.querySelectorAll('.card')].sort((a, b) => a.offsetTop - b.offsetTop)"
    heads = tab.value(f"{tops}.slice(0, 3).map((one) => one.querySelector('h2').textContent)")
    assert heads == ["Accuracy and cost", "Policies", "Three transcripts"]
    assert len(texts(tab, ".example")) == 3
    assert texts(tab, ".scroll.onward + .swipe")
    policies = texts(tab, ".choice")
    assert {name.partition(", ")[2] for name in policies} == {run.name, "other"}
    for reverse in (True, False):
        tab.click("document.querySelectorAll('.sort')[2]")
        cells = "[...document.querySelectorAll('[aria-label=Policies] td:nth-child(3)')]"
        costs = tab.value(f"{cells}.map((one) => Number(one.dataset.value))")
        assert costs == sorted(costs, reverse=reverse)
        assert len(set(costs)) > 1
    tab.click("document.querySelector('.choice')")
    assert set(texts(tab, "[aria-label=Policies] tbody th .link")) == set(policies[1:])
    assert set(texts(tab, ".point .name")) <= set(policies[1:]) | {f"{name[:11]}…" for name in policies[1:]}
    tab.click("document.querySelector('.example')")
    tab.until("document.querySelector('.trial-head .task')")


def test_a_training_run_has_the_same_page(tab: Chromium, tmp_path: Path) -> None:
    page = write_page(with_episodes(training_run(tmp_path / "run"))).file
    tab.dark(True)
    for width in (390, 1280):
        tab.size(width, 900)
        tab.open(page)
        assert tab.value("document.documentElement.scrollWidth") <= width
        assert tab.value(CUT_OFF) == []
        assert tab.value(CONTRAST) == []
    assert set(texts(tab, ".point .name")) == {MINE, "cheapest", "strongest", "oracle"}
    assert len(texts(tab, ".curve .way")) == 3 * 4 + 2
    assert {"Accuracy and cost", "Held-out reward", "The test", "Calls"} <= set(texts(tab, ".card h2"))
    assert "solves 64.0%" in texts(tab, ".lead")[0]
    tab.open(page, "view=trials")
    assert count(tab) == 8
    tab.open(page, "view=trials&outcome=failed&step=10")
    assert count(tab) == 1
    tab.key("j")
    tab.until("document.querySelector('.facts-line')?.innerText.includes('taught nothing')")
    tab.open(page)
    tab.click("[...document.querySelectorAll('.point')].find((one) => one.textContent.includes('trained'))")
    assert count(tab) == 8
    tab.dark(False)


# -- strangers' texts --------------------------------------------------------------------------------------------------


def spoil(value: Any) -> Any:
    """The same with every text, and every name that the page does not need, made hostile."""
    if isinstance(value, dict):
        return {key: spoil(one) for key, one in value.items()} | {HOSTILE: HOSTILE}
    if isinstance(value, list):
        return [spoil(one) for one in value]
    return f"{value}{HOSTILE}" if isinstance(value, str) else value


KEPT = {"status", "key", "role", "messages", "charges", "nano_usd_by_role", "seed", "trial", "calls", "models"}


def spoil_line(line: dict[str, Any]) -> None:
    for name, value in line.items():
        if name not in KEPT:
            line[name] = spoil(value)
    for one in [*line.get("messages", ()), *line.get("charges", ())]:
        one.update({name: spoil(value) for name, value in one.items() if name not in ("role", "turn")})
    if "key" in line:
        line["key"] = [part if isinstance(part, int) else spoil(part) for part in line["key"]]
    for name in ("calls", "models"):
        if name in line:
            line[name] = {f"{key}{HOSTILE}": value for key, value in line[name].items()}


def test_texts_that_are_more_than_texts_stay_texts(tab: Chromium, run: Path, tmp_path: Path) -> None:
    place = copied(run, tmp_path / "<img src=x onerror=globalThis.ran=1>", spoil_line)
    page = write_page(place).file
    tab.open(page)
    assert tab.value("typeof globalThis.ran") == "undefined"
    tab.key("2")
    for _ in range(8 * TASKS):
        tab.key("j")
        tab.until(SELECTED)
        tab.until("document.querySelectorAll('.turn').length > 0")
        tab.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    tab.until("document.querySelectorAll('.fold pre').length > 0")
    assert tab.value("document.querySelectorAll('main script, main img').length") == 0
    assert tab.value("typeof globalThis.ran") == "undefined"
    assert {"U+202E", "U+0000", "U+D800"} <= set(texts(tab, ".unseen"))
    assert "<script>globalThis.ran=1</script>" in texts(tab, ".turn")[0]
    assert tab.value("document.body.innerText.includes('\\u202e')") is False


def test_a_script_that_gets_in_is_not_run_and_nothing_is_fetched(browser: Chromium, page: Path) -> None:
    browser.open(page)
    browser.value("(() => { const s = document.createElement('script'); try { s.textContent = 'globalThis.ran = 1'; } "
                  "catch { globalThis.refused = 1; } document.body.append(s); })()")  # fmt: skip
    browser.value("fetch('https://example.org/').catch(() => { globalThis.kept = 1; })")
    browser.until("globalThis.kept === 1")
    assert browser.value("typeof globalThis.ran") == "undefined"
    assert browser.value("globalThis.refused") == 1
    assert any("Content Security Policy" in one for one in browser.complaints)
    assert not any(one.startswith("a request: http") for one in browser.complaints)


def test_odd_shapes_are_shown_or_said(tab: Chromium, run: Path, tmp_path: Path) -> None:
    odd: list[Any] = [None, 5, "x", [1], {"a": 1}, [None], True]

    def bend(line: dict[str, Any]) -> None:
        turn = int(line.get("turns") or line["totals"]["turns"])
        for place, name in enumerate(
            ("evidence", "groups", "models", "calls", "charges", "messages", "tools", "preference", "failed")
        ):
            if name in line:
                line[name] = odd[(turn + place) % len(odd)]

    page = write_page(copied(run, tmp_path / "odd", bend)).file
    tab.open(page)
    tab.key("2")
    for _ in range(8 * TASKS):
        tab.key("j")
        tab.until(SELECTED)
    assert "cannot be shown" not in " ".join(texts(tab, ".note"))


# -- sizes and themes --------------------------------------------------------------------------------------------------


def test_many_trials_have_few_rows(tab: Chromium, run: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (run / ROWS).read_text().splitlines()]
    for row in rows:
        row.pop(SEAL, None)
    (tmp_path / ROWS).write_text("".join(json.dumps({**rows[n % len(rows)], "trial": n}) + "\n" for n in range(2000)))
    tab.open(write_page(tmp_path).file, "view=trials")
    assert count(tab) == 2000
    assert tab.value("document.querySelectorAll('.row').length") < 60
    tab.value("(() => { const l = document.getElementById('list'); l.scrollTop = l.scrollHeight; })()")
    tab.until("document.getElementById('row-1999') !== null")
    assert tab.value("document.querySelectorAll('.row').length") < 60


def test_a_phone_shows_the_list_or_the_transcript(tab: Chromium, page: Path) -> None:
    tab.size(390, 844)
    tab.open(page)
    assert tab.value("document.documentElement.scrollWidth") <= 390
    tab.key("2")
    assert tab.value("document.querySelector('.side').offsetWidth") == 390
    tab.click("document.querySelector('.row')")
    tab.until("document.querySelector('.trial-head')")
    assert tab.value("document.querySelector('.side').offsetWidth") == 0
    assert tab.value("document.documentElement.scrollWidth") <= 390
    tab.click("document.querySelector('.back')")
    assert tab.value("document.querySelector('.side').offsetWidth") == 390


CONTRAST = """
(() => {
  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255];
  };
  const written = (node) => node.getClientRects().length && !node.closest("svg") &&
    [...node.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim());
  const poor = [];
  for (const node of [...document.querySelectorAll("main *, .top *")].filter(written)) {
    const [low, high] = [light(rgba(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => x - y);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) poor.push(`${node.className} ${ratio.toFixed(2)} ${node.textContent.slice(0, 30)}`);
  }
  return poor;
})()
"""


@pytest.mark.parametrize(("view", "dark"), [("figures", False), ("figures", True), ("trials", True)])
def test_texts_are_dark_or_light_enough(tab: Chromium, page: Path, view: str, dark: bool) -> None:
    """4.5 to 1, as WCAG asks of texts."""
    tab.dark(dark)
    tab.open(page, f"view={view}")
    if view == "trials":
        tab.key("j")
        tab.until("document.querySelector('.trial-head')")
    assert tab.value(CONTRAST) == []
    tab.dark(False)


def test_every_control_has_a_name(tab: Chromium, page: Path) -> None:
    tab.open(page, address())
    nameless = tab.value(
        "[...document.querySelectorAll('button, input, select, [role=listbox], [role=img]')].filter((one) => "
        "!(one.textContent.trim() || one.labels?.length || one.getAttribute('aria-label'))).map((one) => one.outerHTML)"
    )
    assert nameless == []
