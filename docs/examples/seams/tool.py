"""A tool of your own, beside those that FRAMES-v0 has: it opens a page by its title, and costs half a cent.

    python tool.py
    PYTHONPATH=. toolorchestra play --env tool:Example/Pages-v0

The agent reads the function's docstring, and what `Annotated` says of an argument. The price comes from
`price_sheet.json`. What the tool notes as a new passage is shown to the experts too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import toolorchestra as to
from toolorchestra.envs.domains.frames.source import FramesSource
from toolorchestra.envs.tools.search import NewPassages

PAGES = {page.title.lower(): page for page in FramesSource().retriever().passages}


@to.tool(bills=("page-service",))
def open_page(context: to.ToolContext, title: Annotated[str, "The page's whole title."]) -> to.ToolResult:
    """Open a page of the encyclopaedia by its title."""
    found = PAGES.get(title.lower())
    context.bill.add(to.Usage("page-service", "tool", units=1, seconds=0.4))
    if found is None:  # the agent reads it, and the page service is paid all the same
        raise to.ToolError(f"no page {title!r}; titles are those that a search shows")
    return to.ToolResult(f"[{found.title}] {found.text}", note=NewPassages((found,)))


class WithPages(FramesSource):
    """FRAMES-v0's tasks with one tool more."""

    def open(self, task_id: str, seed: int, sheet: to.PriceSheet, tools: Sequence[str] | None) -> to.Scene:
        """Open a task, with the page tool among its tools."""
        theirs = None if tools is None else [name for name in tools if name != open_page.name]
        scene = super().open(task_id, seed, sheet, theirs)
        if tools is None or open_page.name in tools:
            mine = to.Toolbox([open_page]).priced(scene.sheet)
            scene.world.toolbox = to.Toolbox([*scene.world.toolbox, *mine])
        return scene


to.register("Example/Pages-v0", WithPages, prices=str(Path(__file__).with_name("price_sheet.json")))


def main() -> None:
    """Open the page that the question names."""
    env = to.make("Example/Pages-v0", split="test", preference="none")
    observation, _ = env.reset(seed=11)
    print(observation["messages"][-1]["content"])
    info = env.step(to.render_call("open_page", {"title": "The Weary Pilgrim"}))[4]
    print(info["new_messages"][-1]["content"], info["ledger"]["usd_by_role"])


if __name__ == "__main__":
    main()
