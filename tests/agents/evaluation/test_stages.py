"""Tables of the stages of a training, from plays whose means are known."""

from __future__ import annotations

from toolorchestra.agents.evaluation.stages import Play, StagesPlayed, as_markdown, together


def played(*rewards: float) -> StagesPlayed:
    """The trained model earns these, and solves what it earns anything for; before it earned half of that."""
    after = [Play(reward, float(reward > 0), 2.0, 5.0) for reward in rewards]
    before = [Play(play.reward / 2, 0.0, 3.0, 5.0) for play in after]
    oracle = [Play(1.0, 1.0, 1.0, 5.0) for _ in after]
    wishes = ["fast", "frugal"] * (len(rewards) // 2)
    readable = {"before": 0.5, "after": 1.0}
    return StagesPlayed(wishes, {"before": before, "after": after, "oracle": oracle}, ["before", "after"], readable)


def rows(text: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in cells}


def part(text: str, title: str) -> dict[str, list[str]]:
    """The table behind a title."""
    return rows(text.partition(title)[2].split("\n\n")[1])


def test_means_shares_and_differences() -> None:
    text = as_markdown(played(0.8, 0.8, 0.4, 0.0))
    found = rows(text)
    assert [cell.split()[0] for cell in found["after"][:4]] == ["0.500", "50.0%", "75.0%", "2.00"]
    assert found["after"][4:] == ["5", "100.0%"]
    assert found["before"][5] == "50.0%"
    by_wish = part(text, "by wish:")
    assert by_wish["fast"] == ["2", "0.30 / 0% / 3.00", "0.60 / 100% / 2.00", "1.00 / 100% / 1.00"]
    shares = part(text, "Share of the oracle's reward, by wish:")
    assert [cell.split()[0] for cell in shares["fast"]] == ["2", "30.0%", "60.0%"]
    assert shares["frugal"][2].startswith("40.0% [")
    change = found["before → after"]
    assert [cell.split()[0] for cell in change] == ["+0.250", "+75.0%", "-1.00"]
    assert change[2] == "-1.00 [-1.00, -1.00]"  # the same on every task: the pairs are what is drawn


def test_without_an_oracle_there_are_no_shares() -> None:
    whole = played(0.8, 0.8)
    plays = {name: some for name, some in whole.plays.items() if name != "oracle"}
    text = as_markdown(StagesPlayed(whole.wishes, plays, whole.stages, whole.readable))
    assert "Share of the oracle's reward" not in text


def test_a_task_that_somebody_failed_counts_for_nobody() -> None:
    whole = played(0.8, 0.8, 0.4, 0.0)
    plays = {**whole.plays, "before": [None, *whole.plays["before"][1:]]}
    found = as_markdown(StagesPlayed(whole.wishes, plays, whole.stages, whole.readable))
    assert "3 tasks." in found
    assert rows(found)["after"][0].startswith("0.400")
    assert rows(found)["oracle"][0].startswith("1.000")


def test_runs_are_put_together_task_by_task() -> None:
    both = together([played(0.8, 0.8), played(0.4, 0.0)])
    assert as_markdown(both) == as_markdown(played(0.8, 0.8, 0.4, 0.0))
