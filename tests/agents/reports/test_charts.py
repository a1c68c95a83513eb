"""Charts: axes, smoothing, thinning, the front, and names that keep clear of what is drawn."""

from __future__ import annotations

import re

import pytest

from toolorchestra.agents.reports.charts import Line, line_chart, smoothed, thinned
from toolorchestra.agents.reports.plane_chart import PlanePoint, front_of, plane_chart
from toolorchestra.agents.reports.svg import log_ticks, tag, ticks, whole_ticks


def test_axes_name_round_numbers() -> None:
    assert ticks(0.13, 0.66) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
    assert ticks(2.0, 2.0)[0] < 2 < ticks(2.0, 2.0)[-1]
    assert whole_ticks(0, 3) == [0, 1, 2, 3]
    assert log_ticks(0.3, 12) == pytest.approx([0.3, 1, 3, 10])


def test_a_smoothed_line_keeps_its_steps_and_its_mean() -> None:
    noisy = [(step, float(step % 2)) for step in range(100)]
    smooth = smoothed(noisy, 9)
    assert [x for x, _ in smooth] == [x for x, _ in noisy]
    assert all(0.39 < y < 0.61 for _, y in smooth)


def test_thinning_keeps_the_mean_and_the_bound() -> None:
    points = [(float(step), float(step)) for step in range(10_001)]
    thin = thinned(points, 100)
    assert len(thin) == 100
    assert sum(y for _, y in thin) / 100 == pytest.approx(5_000, rel=0.01)


def test_a_chart_has_a_unit_a_legend_outside_and_words_for_who_cannot_see_it() -> None:
    lines = [Line("a <b>", [(0, 1.0), (10, 2.0)]), Line("other", [(0, 3.0)], "c1", dashed=True)]
    chart = line_chart("Cost", "About.", lines, unit="cents")
    assert chart is not None
    drawing, legend = chart.html().split("</svg>")
    assert "cents</text>" in drawing
    assert "step</text>" in drawing
    assert 'aria-label="Cost. a &lt;b&gt;: 1 to 2; other: 3 to 3"' in drawing
    assert "a &lt;b&gt;</li>" in legend
    assert line_chart("Cost", "", [Line("none", [])], unit="cents") is None


def test_an_attribute_cannot_end_its_element() -> None:
    assert tag("p", class_='"><script>') == '<p class="&quot;&gt;&lt;script&gt;"></p>'


def test_the_front_is_of_who_is_not_beaten() -> None:
    told = (("dear", 9.0, 0.6), ("best", 5.0, 0.7), ("cheap", 1.0, 0.4), ("twin", 1.0, 0.3), ("mid", 2.0, 0.4))
    points = [PlanePoint(name, cents, right) for name, cents, right in told]
    assert [one.name for one in front_of(points)] == ["cheap", "best"]


def test_names_on_the_plane_do_not_cover_each_other() -> None:
    points = [PlanePoint(f"player-{k}", 3.0 + k / 50, 0.6 + k / 500, (2.5, 3.6), (0.55, 0.65)) for k in range(4)]
    chart = plane_chart("Plane", "", points, [(2.0, 0.5), (3.0, 0.6)], ("before", "after"))
    assert chart is not None
    placed = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*class="name[^"]*">([^<]+)<', chart.drawing)
    assert len(placed) == 6
    boxes = [(float(x), float(y), len(words) * 6.0) for x, y, words in placed]
    for place, (x, y, w) in enumerate(boxes):
        assert x >= 40
        assert x + w <= 360
        for a, b, v in boxes[place + 1 :]:
            assert x + w <= a or a + v <= x or abs(y - b) >= 13


def test_who_costs_nothing_is_on_no_log_scale() -> None:
    assert plane_chart("Plane", "", [PlanePoint("free", 0.0, 0.5)]) is None
