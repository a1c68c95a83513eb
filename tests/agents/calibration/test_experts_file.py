"""A fit becomes experts: its numbers are the fit's, and what the recording does not know is refused or said."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.agents.calibration.made_outcomes import Truth, drawn
from tests.two_texts import raises
from toolorchestra.agents.calibration.experts_file import NEVER, FileOptions, make_experts
from toolorchestra.agents.calibration.experts_fit import FitFile, fit, read_fit, write, written
from toolorchestra.agents.commands import recorded
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Answer, Question
from toolorchestra.envs.models.simulated import load_experts, packaged
from toolorchestra.envs.tools.tool_config import ToolConfig, load

TRUTH = Truth(tasks=80, models=3, runs=3, families=3)
SUBJECT_OF = {"math": ["family 0"], "code": ["family 1", "family 2"]}
OFFERS = [
    {"alias": "answer-1", "model": "large", "seconds": 9},
    {"alias": "answer-2", "model": "model 1", "seconds": 3},
]
TOOLS = [{"kind": "answer", "name": "answer", "description": "", "offers": OFFERS}]
ANSWERERS = ToolConfig.read({"name": "two experts", "tools": TOOLS}, "two experts")
CHOICES = FileOptions({"answer-1": "model 0"}, SUBJECT_OF)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("fit") / "experts.json"
    write(fit(drawn(TRUTH), draws=20), file, "drawn")
    return file


@pytest.fixture(scope="module")
def read(fitted: Path) -> FitFile:
    return read_fit(fitted)


def changed(fitted: Path, folder: Path, **parts: Any) -> FitFile:
    """The fit with parts of its file replaced."""
    file = folder / "changed.json"
    file.write_text(json.dumps({**json.loads(fitted.read_text()), **parts}))
    return read_fit(file)


def test_the_numbers_of_the_experts_are_those_of_the_fit(fitted: Path, read: FitFile) -> None:
    told = json.loads(fitted.read_text())
    made = make_experts(read, ANSWERERS, CHOICES).data
    law, large = made["law"], made["models"]["large"]
    assert (law["task"], law["pair"]) == (told["shared"]["task_sd"][0], told["shared"]["pair_sd"][0])
    assert law["tokens"]["run"] == told["shared"]["tokens run_sd"][0]
    assert law["seconds"]["with_difficulty"] == told["shared"]["seconds with_difficulty"][0]
    assert law["together"] == told["tokens with seconds"]
    assert law["level"] == law["refusals"] == 0  # the recording knows no levels, and its failures are in the skills
    skill = told["models"]["model 0"]["skill"]
    assert large["answering"]["math"] == skill["family 0"]
    sizes = told["families"]
    both = (skill["family 1"] * sizes["family 1"] + skill["family 2"] * sizes["family 2"]) / (
        sizes["family 1"] + sizes["family 2"]
    )
    assert large["answering"]["code"] == pytest.approx(both, abs=1e-4)
    medians = told["models"]["model 0"]["tokens"]["median"]
    mean = sum(math.log(medians[name]) * size for name, size in sizes.items()) / sum(sizes.values())
    assert large["median_tokens"]["answer"] == pytest.approx(math.exp(mean), rel=1e-3)
    assert large["querying"] == NEVER
    assert made["models"]["model 1"]["answering"]["math"] == told["models"]["model 1"]["skill"]["family 0"]
    assert made["made_of"]["experts"]["large answers"]["skill ends"] == told["models"]["model 0"]["skill ends"]


def test_an_expert_is_right_as_often_as_its_recording_was(read: FitFile, tmp_path: Path) -> None:
    written(make_experts(read, ANSWERERS, CHOICES).data, tmp_path / "mine.json", "the experts")
    expert = load_experts(tmp_path / "mine.json")["large"]
    asked = [Question(f"question {n}", Answer("1"), "math", "math", 3.0) for n in range(4000)]
    right = np.mean([expert.answer_chance(one, 1.0, "") for one in asked])
    law = expert.law
    fitted = NormalDist().cdf(read.skill("model 0", ["family 0"]) / math.sqrt(1 + law.task**2 + law.pair**2))
    assert right == pytest.approx(fitted, abs=0.02)
    assert max(one.difficulty for one in asked) == 3.0
    harder = replace(asked[0], difficulty=5.0)
    assert expert.answer_chance(harder, 1.0, "") == expert.answer_chance(asked[0], 1.0, "")  # a level tells nothing


def test_who_has_nobody_behind_is_refused_by_name(read: FitFile) -> None:
    with pytest.raises(ConfigError, match=r"no recorded model stands behind answer-1 \(large\)\. Recorded are model 0"):
        make_experts(read, ANSWERERS)
    option = "--as EXPERT=MODEL, --tools FILE, or --rest-from 2026-11"
    with raises(ConfigError, r"behind search-1 \(gpt-5\), .* with stands=.* rest_from='2026-11'$", option):
        make_experts(read, load("paper"), FileOptions({"answer-1": "model 0"}))
    said = r"behind 'large', and experts 2026-11 have none of that name .* with stands=\{'large': MODEL\}$"
    with raises(ConfigError, said, "--as large=MODEL"):
        make_experts(read, ANSWERERS, FileOptions(rest_from="2026-11"))


def test_the_rest_is_taken_from_packaged_experts_and_said(read: FitFile) -> None:
    choices = FileOptions({"answer-1": "model 0", "search-2": "model 2"}, SUBJECT_OF, "2026-11")
    made = make_experts(read, load("paper"), choices)
    said = "\n".join(made.told)
    assert "answer-1 (gpt-5) answers as 'model 0' did" in said
    assert "search-2 (gpt-5-mini) writes queries as 'model 2' did" in said
    assert "taken from experts 2026-11: search-1 (gpt-5), search-3 (qwen3-32b), reasoner-1 (gpt-5)" in said
    assert "taken from experts 2026-11: how hard queries are, and what a computed result helps" in said
    assert "recorded, and behind no expert: model 1" in said
    assert set(made.data["models"]) == set(packaged("2026-11"))


def test_what_is_taken_succeeds_as_often_and_takes_as_long(read: FitFile, tmp_path: Path) -> None:
    choices = FileOptions({"answer-1": "model 0"}, SUBJECT_OF, "2026-11")
    written(make_experts(read, load("paper"), choices).data, tmp_path / "mine.json", "the experts")
    mine, old = load_experts(tmp_path / "mine.json"), packaged("2026-11")
    levels = [1] * 1 + [2] * 2 + [3] * 3 + [4] * 4 + [5] * 4
    asked = [
        Question(f"question {n}", Answer("1"), "math", "math", float(levels[n % len(levels)]), computable=True)
        for n in range(2800)
    ]
    offered = {
        "query_chance": ("qwen3-32b", ()),
        "code_chance": ("qwen2.5-coder-32b", (1.0,)),
        "answer_chance": ("llama-3.3-70b", (1.0, "")),
    }
    for chance, (model, more) in offered.items():
        rates = [np.mean([getattr(table[model], chance)(one, *more) for one in asked]) for table in (mine, old)]
        assert rates[0] == pytest.approx(rates[1], abs=0.035), chance
    for lengths in ("output_tokens", "seconds"):
        here, there = (getattr(table["qwen3-32b"], lengths) for table in (mine, old))
        assert (here["answer"], here["query"]) == pytest.approx((there["answer"], there["query"]), rel=0.01)


def test_what_the_recording_does_not_know_is_refused_or_taken(fitted: Path, tmp_path: Path) -> None:
    told = json.loads(fitted.read_text())
    models = {name: {k: v for k, v in one.items() if k != "seconds"} for name, one in told["models"].items()}
    shared = {name: value for name, value in told["shared"].items() if not name.startswith("seconds")}
    without = changed(fitted, tmp_path, models=models, shared=shared, **{"tokens with seconds": None})
    said = "does not know how seconds vary; take it from packaged experts with rest_from='2026-11', or record it$"
    with raises(ConfigError, said, "--rest-from 2026-11"):
        make_experts(without, ANSWERERS, CHOICES)
    stands = {"answer-1": "model 0", "answer-2": "model 1", "answer-3": "model 2"}
    names = ["answer-1", "answer-2", "answer-3"]
    made = make_experts(without, load("paper").only(names), FileOptions(stands, SUBJECT_OF, "2026-11"))
    assert "taken from experts 2026-11: the seconds of gpt-5" in made.told
    assert "taken from experts 2026-11: how tokens go with seconds, run by run of a model on a task" in made.told
    old = packaged("2026-11")["gpt-5"]
    seconds = made.data["models"]["gpt-5"]["median_seconds"]["answer"]
    stretch = made.data["models"]["gpt-5"]["stretch"]
    assert seconds * old.law.seconds.mean(stretch) == pytest.approx(old.seconds["answer"], rel=0.01)


@pytest.mark.parametrize(
    ("choices", "said", "option"),
    [
        (FileOptions({"answer-1": "modle 0"}), "^stands of 'answer-1': no recorded model 'modle 0'; .* Did you mean "
         "'model 0'", "--as answer-1=MODEL"),
        (FileOptions({"answer-1": "model 0", "large": "model 1"}), r"^stands: answer-1 \(large\) would be 'model 0' "
         "and 'model 1', and one .*; leave one out", "one --as large=MODEL alone"),
        (replace(CHOICES, subjects={"maths": ["family 0"]}), "^subjects: no subject 'maths'; .* Did you mean 'math'",
         "--family SUBJECT=FAMILY"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(read: FitFile, choices: FileOptions, said: str, option: str) -> None:
    with raises(ConfigError, said, option):
        make_experts(read, ANSWERERS, choices)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no fit can be read at .*; toolorchestra recorded fit OUTCOMES --out FILE makes one"),
        ("task,model", "a JSON file of fitted experts expected, and it is no JSON"),
        ("[1]", r"a file of kind 'fitted experts' expected, got \[1\]"),
        ('{"kind": "fitted experts", "format": 9}', "format 1 expected, got 9; fit the recording again"),
        (
            '{"kind": "fitted experts", "format": 1, "families": {"a": 3}, "shared": {}, "models": {"m": {}}}',
            "families, shared, models as `recorded fit` writes them expected",
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "experts.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_fit(file)


def test_subjects_take_the_families_that_their_questions_are_played_as(fitted: Path, tmp_path: Path) -> None:
    told = json.loads(fitted.read_text())
    names = {"family 0": "physics", "family 1": "contracts", "family 2": "Math"}
    models = {
        model: {**one, **{key: {names[f]: v for f, v in one[key].items()} for key in ("skill", "skill ends")}}
        for model, one in told["models"].items()
    }
    for one in models.values():
        for measure in ("tokens", "seconds"):
            one[measure] = {**one[measure], "median": {names[f]: v for f, v in one[measure]["median"].items()}}
    families = {names[family]: size for family, size in told["families"].items()}
    made = make_experts(
        changed(fitted, tmp_path, models=models, families=families), ANSWERERS, FileOptions({"large": "model 0"})
    )
    skill, large = models["model 0"]["skill"], made.data["models"]["large"]["answering"]
    assert (large["math"], large["science"], large["knowledge"]) == (
        skill["Math"],
        skill["physics"],
        skill["contracts"],
    )
    assert "code: no family of that name, so the mean over all families" in made.told
    whole = sum(skill[name] * size for name, size in families.items()) / sum(families.values())
    assert large["code"] == large["logic"] == pytest.approx(whole, abs=1e-4)


def test_the_command_writes_experts_that_are_played(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json"
    words = [str(fitted), "--out", str(out), "--as", "answer-1=model 0", "answer-2=model 1", "--rest-from", "2026-11"]
    assert recorded.world([*words, "--family", "math=family 0", "math=family 1"]) == 0
    said = capsys.readouterr().out
    assert "- answer-1 (gpt-5) answers as 'model 0' did" in said
    assert "- math: 'family 0' and 'family 1'" in said
    assert "- warning of the fit: no usd are known" in said
    env = gym.make("ToolOrchestra/HLE-v0", experts=str(out))
    env.reset(seed=1)
    *_, info = env.step('<tool_call>{"name": "answer", "arguments": {"model": "answer-1"}}</tool_call>')
    assert info["outcome"]
    assert recorded.world([str(fitted), "--out", str(tmp_path / "mine.txt")]) == 2
    assert "a file that ends in .json expected" in capsys.readouterr().err
    assert recorded.world([str(fitted), "--out", str(tmp_path / "no" / "mine.json"), *words[3:]]) == 2
    assert "the experts cannot be written" in capsys.readouterr().err
