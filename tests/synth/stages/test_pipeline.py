"""A run is resumed exactly, pays for nothing twice, stops at its budget, and makes what the plain maker makes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.synth import runs
from tests.two_texts import raises
from toolorchestra.envs.base.errors import ConfigError, SpendCapReached
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatRequest, Completion, ScriptedModel
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.synth import generate, prove
from toolorchestra.synth.authors import model_author
from toolorchestra.synth.authors.model_author import USUAL, LlmAuthor, ScriptedParts
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof.solvers import Arena
from toolorchestra.synth.stages import domain_folder, pipeline
from toolorchestra.synth.stages.limited_work import SHARED
from toolorchestra.synth.stages.stage_values import SynthesisSettings
from toolorchestra.synth.storage import AUTHOR, Journal, PaidAnswer, PaidModel, PaidRequest, StageStore

KILLS = 5
FRAMED = re.compile(r"Oh hello there! |Sorry for my words\. |Listen, will you\? |Good heavens\. |.* Nothing else\.$")
"""How the stand-in says requests anew."""
Reply = Callable[[ChatRequest], str]
COMMAND = """
import sys
from pathlib import Path
from tests.synth import runs
from toolorchestra.synth.authors.model_author import USUAL, LlmAuthor, ScriptedParts

folder, log = Path(sys.argv[1]), Path(sys.argv[2])
stand_in = ScriptedParts(runs.texts(), USUAL)

def reply(request):
    with log.open("a") as file:
        file.write(f"{request.seed}\\n")
    return stand_in(request)

runs.made(folder, reply)
"""


def test_a_spec_goes_through_the_stages_to_the_bytes_of_the_plain_maker(tmp_path: Path) -> None:
    spec = specs.load(runs.SPEC)
    domain_folder.make(spec, 15, 3, tmp_path / "plain")
    work = StageStore(tmp_path / "work", resume=False)
    asyncio.run(pipeline.make(pipeline.SynthesisRun(spec, SynthesisSettings(tasks=15, seed=3), work, tmp_path / "out")))
    assert runs.read(tmp_path / "out") == runs.read(tmp_path / "plain")


def _reworded(folder: Path, reply: Reply | None = None) -> pipeline.Made:
    """Fifteen tasks of the spec, with wordings of a model's where one is given."""
    work = StageStore(folder / "work", resume=False)
    model = LlmAuthor("a library", runs.paid_model(folder / "work", reply)) if reply else None
    settings = SynthesisSettings(tasks=15, seed=3)
    run = pipeline.SynthesisRun(specs.load(runs.SPEC), settings, work, folder / "out", reworder=model)
    return asyncio.run(pipeline.make(run))


def _wordings(made: pipeline.Made) -> list[str]:
    return [say for task in made.domain.tasks.values() for request in task.requests for say in request.say]


def test_a_model_says_requests_in_more_ways_and_all_else_stays(tmp_path: Path) -> None:
    before = _reworded(tmp_path / "plain")
    after = _reworded(tmp_path / "anew", ScriptedParts(runs.texts()))
    for one, other in zip(before.domain.tasks.values(), after.domain.tasks.values(), strict=True):
        assert (one.task_id, one.actions, one.end_states) == (other.task_id, other.actions, other.end_states)
        assert [request.inform for request in one.requests] == [request.inform for request in other.requests]
    assert not any(FRAMED.match(say) for say in _wordings(before))
    assert sum(bool(FRAMED.match(say)) for say in _wordings(after)) > len(_wordings(after)) / 3
    assert next(tally for tally in after.tallies if tally.stage == "reword").kept > 50
    kept = specs.parsed((tmp_path / "anew" / "work" / "intents.yaml").read_text(), Path("intents.yaml"))
    assert all(len(entry["more"]) == 5 for entry in kept)


def test_new_wordings_that_say_or_mean_something_else_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, lacking, counting, other = "Oh hello there! {}", "Please do it.", "{} All 3 of them.", "{} But not today."

    def reply(request: ChatRequest) -> str:
        if "doubt of reword" in request.messages[1]["content"]:
            said = request.messages[1]["content"]
            wrong = re.findall(r'"([^"]*But not today\.)"', said)
            return json.dumps({"verdict": "no", "reasons": wrong})
        entries = model_author.plain(runs.texts()["intents.yaml"])
        frames = (good, lacking, counting, other)
        says = ({"intent": e["intent"], "say": [f.replace("{}", e["say"][0]) for f in frames]} for e in entries)
        return json.dumps({"wordings": list(says)})

    made = _reworded(tmp_path / "anew", reply)
    tally = next(tally for tally in made.tallies if tally.stage == "reword")
    entries = model_author.plain(runs.texts()["intents.yaml"])
    assert tally.kept in range(len(entries), 2 * len(entries))  # one that has no values may lack none
    assert tally.dropped["doubted"] == len(entries)
    assert tally.dropped["other values"] >= len(entries)
    assert not any("All 3 of" in say or "But not today" in say for say in _wordings(made))

    async def fails(arena: Arena, _solver: object, task_id: str) -> bool:
        task = arena.domain.tasks[task_id]
        return not any(say.startswith("Oh hello") for request in task.requests for say in request.say)

    monkeypatch.setattr(Arena, "passes", fails)
    broken = _reworded(tmp_path / "broken", reply)
    assert "the oracle failed" in next(tally for tally in broken.tallies if tally.stage == "reword").notes[0]
    assert not any(say.startswith("Oh hello") for say in _wordings(broken))


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bytes_and_pays_no_answer_twice(tmp_path: Path) -> None:
    runs.made(tmp_path / "whole", ScriptedParts(runs.texts(), USUAL))
    log = tmp_path / "asked"
    folder = tmp_path / "broken"
    command = [sys.executable, "-c", COMMAND, str(folder), str(log)]
    rng, kills = random.Random(5), 0
    reached: set[tuple[int, int]] = set()
    while kills < KILLS:
        goal = sum(_reached(folder / "work")) + rng.randint(1, 3)
        running = subprocess.Popen(command, start_new_session=True)
        while running.poll() is None and sum(_reached(folder / "work")) < goal:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.05))
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            kills += 1
            reached.add(_reached(folder / "work"))
        elif kills < KILLS:  # done before the last kill: break the end off and go on
            assert running.returncode == 0
            stages = folder / "work" / "stages.jsonl"
            stages.write_bytes(b"".join(stages.read_bytes().splitlines(keepends=True)[:-3]))
    subprocess.run(command, check=True)
    assert runs.read(folder / "out") == runs.read(tmp_path / "whole" / "out")
    assert len(reached) >= 3  # the kills came at different places
    asked = log.read_text().split()
    journal = [json.loads(line)["key"] for line in (folder / "work" / "calls.jsonl").read_text().splitlines()]
    whole = (tmp_path / "whole" / "work" / "calls.jsonl").read_text().splitlines()
    assert len(journal) == len(set(journal)) == len(whole)
    # Asked again is only what was on its way, and so unanswered, when a run was killed: at most one batch a kill.
    assert len(set(asked)) == len(journal)
    assert len(asked) - len(journal) <= 3 * KILLS


def _reached(work: Path) -> tuple[int, int]:
    """Calls answered and stages done."""
    calls, stages = (work / "calls.jsonl", work / "stages.jsonl")
    found = [path.read_bytes().count(b"\n") if path.is_file() else 0 for path in (calls, stages)]
    return found[0], found[1]


def test_a_second_run_asks_nobody_and_makes_the_same(tmp_path: Path) -> None:
    _, first, spent = runs.honest()
    assert spent.paid == len(spent.ledger) > 8
    runs.copied(tmp_path / "run")

    def nobody(_request: object) -> str:
        raise AssertionError("asked again")

    again, kept = runs.made(tmp_path / "run", nobody)
    assert kept.paid == 0
    assert kept.ledger.nano_usd == spent.ledger.nano_usd
    assert again.tallies == first.tallies
    assert runs.read(tmp_path / "run" / "out") == runs.read(runs.honest()[0] / "out")


QUESTION = PaidRequest("rows", AUTHOR, (Message(role="user", content="hi"),))


class Slow(ScriptedModel):
    """Lets others ask meanwhile."""

    async def complete(self, request: ChatRequest) -> Completion:
        await asyncio.sleep(0)
        return await super().complete(request)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_equal_questions_at_the_same_time_are_paid_once_and_purses_beside_count_together(
    tmp_path: Path, concurrency: int
) -> None:
    asked: list[ChatRequest] = []
    models = Slow(lambda request: f"answer {asked.append(request) or len(asked)}")
    paid_model = PaidModel(
        models, "scripted", runs.sheet(), Journal(tmp_path / "calls.jsonl"), SpendCap(1), concurrency
    )

    async def play() -> list[PaidAnswer]:
        answers = await asyncio.gather(paid_model.ask(QUESTION), paid_model.ask(QUESTION))
        await paid_model.beside(models, "gpt-5").ask(QUESTION)
        return answers

    assert [answer.text for answer in asyncio.run(play())] == ["answer 1"] * 2
    assert len(asked) == len(paid_model.ledger) == paid_model.paid == 2
    assert paid_model.cap is not None
    assert paid_model.cap.spent_usd == paid_model.ledger.usd


class TellsCost(ScriptedModel):
    """Says itself what a reply cost."""

    async def complete(self, request: ChatRequest) -> Completion:
        said = await super().complete(request)
        return said._replace(usage=said.usage._replace(told_nano_usd=5_000_000))


def test_what_a_server_tells_that_an_answer_cost_is_what_the_journal_counts(tmp_path: Path) -> None:
    def paid(cap: SpendCap) -> PaidModel:
        models = TellsCost(lambda request: "answer")
        return PaidModel(models, "scripted", runs.sheet(), Journal(tmp_path / "calls.jsonl"), cap)

    first, again = SpendCap(1), SpendCap(1)
    asyncio.run(paid(first).ask(QUESTION))
    assert paid(again).ledger.nano_usd == 5_000_000
    assert first.spent_usd == again.spent_usd == 0.005


def test_the_budget_stops_a_run_before_a_call_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    with pytest.raises(SpendCapReached):
        runs.made(tmp_path, cap=SpendCap(0.02))
    rows = (tmp_path / "work" / "calls.jsonl").read_text().splitlines()
    assert 1 <= len(rows) < 9
    _, spent = runs.made(tmp_path, cap=SpendCap(10))
    assert spent.paid == len(spent.ledger) - len(rows)


def test_what_earlier_runs_paid_counts_towards_the_budget(tmp_path: Path) -> None:
    def purse(cap: SpendCap) -> PaidModel:
        return runs.paid_model(tmp_path, lambda request: "answer", cap)

    first = purse(SpendCap(1))
    asyncio.run(first.ask(QUESTION))
    paid = first.ledger.usd
    second = purse(cap := SpendCap(paid))
    assert cap.spent_usd == second.ledger.usd == paid > 0
    assert asyncio.run(second.ask(QUESTION)).text == "answer"
    with pytest.raises(SpendCapReached):
        asyncio.run(second.ask(QUESTION._replace(number=1)))
    assert second.paid == 0


def test_a_line_that_was_being_written_is_asked_again(tmp_path: Path) -> None:
    path = runs.copied(tmp_path / "run") / "work" / "calls.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    kept = Journal(path)
    assert len(kept.rows) == len(lines) - 1
    kept.add(json.loads(lines[-1]))
    assert path.read_bytes() == b"".join(lines)


def test_other_settings_or_an_unnamed_resume_are_refused(tmp_path: Path) -> None:
    work = StageStore(tmp_path / "work", resume=False)
    work.agree({"tasks": 3})
    with raises(ConfigError, r"\(tasks: 3 then, 4 now\); use those, or write elsewhere$", "another --out"):
        StageStore(tmp_path / "work", resume=True).agree({"tasks": 4})
    said = "holds an earlier run; go on with resume=True, or remove it or write elsewhere$"
    with raises(ConfigError, said, "--resume, or another --out"):
        StageStore(tmp_path / "work", resume=False)


def test_the_report_bills_by_stage_and_role_and_counts_what_was_dropped(tmp_path: Path) -> None:
    made, spent = runs.made(tmp_path, runs.slipping("schema", lambda text: text.replace("CREATE", "CRAETE")))
    told = generate.report_of(made, spent)
    assert {"schema/author", "policy/judge", "intents/author"} <= set(told["usd_by_stage"])
    assert sum(told["usd_by_stage"].values()) == pytest.approx(told["usd"])
    assert told["usd_a_kept_task"] == pytest.approx(told["usd"] / 12)
    schema = next(row for row in told["stages"] if row["stage"] == "schema")
    assert schema["rounds"] == 1
    assert schema["dropped"] == {"SQL": 1}
    assert sum(told["difficulty"].values()) == told["tasks"] == 12
    assert "SQL: 1" in generate.report_text(told)


def test_voices_are_made_where_time_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wordings become patterns, and a spec's can take for ever."""
    asked: list[str] = []
    run = SHARED.run

    def watched(work: Any, *given: Any, **more: Any) -> Any:
        asked.append(work.__name__)
        return run(work, *given, **more)

    monkeypatch.setattr(SHARED, "run", watched)
    runs.made(tmp_path)
    assert "_voiced" in asked


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "finance"  # the name of a shipped one, whose spec it is not of
    made = ["a library", "--model", f"standin:{runs.SPEC}", "--tasks", "10", "--out", str(out)]
    assert generate.main(made) == 0
    assert "library: 10 tasks kept" in capsys.readouterr().out
    assert prove.main([str(out), "--at-once", "1"]) == 0
    assert "library: 10 tasks self-consistent" in capsys.readouterr().out
    assert generate.main(made) == 2
    assert "On the command line: --resume, or another --out\n" in capsys.readouterr().err
    assert generate.main([*made, "--resume", "--seed", "2"]) == 2
    assert "was begun with other settings (seed: 1 then, 2 now)" in capsys.readouterr().err
    again = [*made[:-1], str(tmp_path / "again"), "--replay", str(tmp_path / "finance.work" / "calls.jsonl")]
    assert generate.main(again) == 0
    assert runs.read(tmp_path / "again") == runs.read(out)
    assert generate.main(["a library " * 40, "--model", "nobody:x", "--out", str(tmp_path / "x")]) == 2
    told = capsys.readouterr().err
    assert (
        "error: a model is written SCHEME:NAME, got 'nobody:x'; no scheme 'nobody'; valid: openai, standin. On" in told
    )
    with raises(ConfigError, "^a model is written SCHEME:NAME, got 'gpt-5';", "--model openai:NAME"):
        model_author.load("gpt-5", "paper-2025-11")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("zoo --out x", "no spec 'zoo'; name a folder, a YAML file or one of"),
        ("zoo --model standin:parking", "a domain on a subject needs a place: --out DIR"),
        ("parking --model standin:parking --out x", "parking is a spec, which no model writes"),
        ("finance --reader standin:finance", "On the command line: --reader with --out DIR"),
        ("finance --reword standin:finance", "On the command line: --reword with --out DIR"),
        ("finance --resume", "resume needs a folder for the domain, beside which its answers are kept;"),
        ("parking --out x --reader author", "--reader author takes the model of --model, and there is none"),
    ],
)
def test_what_is_asked_for_must_be_possible(asked: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):  # where the options themselves are wrong
        assert generate.main(asked.split()) == 2
    assert says in capsys.readouterr().err


def test_a_cap_that_is_too_low_says_how_the_run_goes_on(tmp_path: Path) -> None:
    said = r"has 0\.\d+ \$ left, and the next call .*; raise the cap, and go on with resume=True$"
    with raises(SpendCapReached, said, "--resume with a higher --spend-cap"):
        runs.made(tmp_path, cap=SpendCap(1e-6))


def test_a_cassette_without_the_call_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape = tmp_path / "tape.jsonl"
    tape.write_text("")
    arguments = ["a zoo", "--model", f"standin:{runs.SPEC}", "--out", str(tmp_path / "zoo")]
    assert generate.main([*arguments, "--replay", str(tape)]) == 2
    assert "no recording of this call (subjects, author" in capsys.readouterr().err
