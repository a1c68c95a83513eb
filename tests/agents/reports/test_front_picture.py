"""The picture of the accuracy-cost plane: of real runs, the same each time, and honest about what it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from tests.two_texts import raises
from toolorchestra.agents.commands import compare
from toolorchestra.agents.evaluation.comparison import read_runs
from toolorchestra.agents.evaluation.rows import MANIFEST
from toolorchestra.agents.reports.front_picture import THEMES, FrontPicture, _figure, front_picture
from toolorchestra.agents.reports.plane_chart import PlanePoint
from toolorchestra.envs.base.errors import ConfigError

pytest.importorskip("matplotlib", reason="the picture is drawn by it")


def run_of(folder: Path, *, simulated: bool = True, failed: bool = False) -> Path:
    """Two policies on 20 tasks: a cheap one that is right half of the time, and a dear one that is right more often."""
    rows = [made_row(f"t{n}", float(n % 2), policy="cheap", cents=1.0 + n / 10) for n in range(20)]
    rows += [made_row(f"t{n}", float(n % 4 > 0), policy="dear", cents=9.0) for n in range(20)]
    rows += [made_row("t1", None, policy="broken")] if failed else []
    write_run(folder, rows)
    (folder / MANIFEST).write_text(json.dumps({"simulated": simulated}))
    return folder


def test_players_stand_at_their_means_with_intervals_in_both_directions(tmp_path: Path) -> None:
    picture = front_picture(read_runs([run_of(tmp_path)]), [tmp_path], "world 2026-11")
    cheap, dear = picture.points
    assert (cheap.name, cheap.accuracy, dear.accuracy) == ("cheap", 0.5, 0.75)
    assert cheap.cents == pytest.approx(1.95)
    assert cheap.cents_ends is not None
    assert cheap.accuracy_ends is not None
    assert cheap.cents_ends[0] < cheap.cents < cheap.cents_ends[1]
    assert cheap.accuracy_ends[0] < 0.5 < cheap.accuracy_ends[1]
    assert picture.title == "HLE-v0: accuracy and cost"
    assert picture.about == (
        "20 tasks of the test split, bars are intervals of 95 %; simulated experts and latencies; world 2026-11"
    )


def test_only_a_simulated_run_is_called_so_and_a_failed_player_is_named(tmp_path: Path) -> None:
    about = front_picture(read_runs([run_of(tmp_path, simulated=False, failed=True)]), [tmp_path]).about
    assert "simulated" not in about
    assert about.endswith("; trials of broken failed")


def test_the_command_draws_light_and_dark_and_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of(tmp_path / "run")
    for name in ("one", "two"):
        assert compare.main([str(run), "--picture", str(tmp_path / name / "front")]) == 0
    assert f"drawn: {tmp_path / 'one' / 'front-dark.svg'}" in capsys.readouterr().err
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["front-dark.png", "front-dark.svg", "front-light.png", "front-light.svg"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert (tmp_path / "one" / "front-dark.png").read_bytes() != (tmp_path / "one" / "front-light.png").read_bytes()


def test_runs_on_different_environments_are_no_one_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_run(tmp_path / "other", [made_row("t1", env="FRAMES-v0")])
    run = run_of(tmp_path / "run")
    assert compare.main([str(run), str(other), "--picture", str(tmp_path / "front")]) == 2
    assert "a picture is of one environment and split, but these runs have FRAMES-v0 test, HLE-v0 test" in (
        capsys.readouterr().err
    )


def test_runs_in_which_every_policy_has_a_failed_trial_have_no_picture(tmp_path: Path) -> None:
    run = write_run(tmp_path, [made_row("t1", None)])
    said = "no policy of these runs has an outcome for each of its trials; go on with the runs, resume=True, until all"
    with raises(ConfigError, said, "toolorchestra evaluate with --resume"):
        front_picture(read_runs([run]), [run])


def test_no_name_runs_over_the_edge() -> None:
    """Two points beside each other at the right edge leave little room for the second name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    def point(name: str, cents: float, accuracy: float) -> PlanePoint:
        return PlanePoint(name, cents, accuracy, (0.9 * cents, 1.1 * cents), (accuracy - 0.05, accuracy + 0.05))

    points = (point("cheapest", 0.27, 0.443), point("oracle", 6.84, 0.687), point("strongest", 10.1, 0.69))
    figure = _figure(pyplot, FrontPicture("title", "about", points), THEMES["light"])
    names = [text for text in figure.axes[0].texts if text.get_text() in {one.name for one in points}]
    assert len(names) == 3
    for text in names:
        box = text.get_window_extent()
        assert figure.bbox.x0 <= box.x0, text.get_text()
        assert box.x1 <= figure.bbox.x1, text.get_text()
    pyplot.close(figure)
