"""Always the same expert: what is recorded so shows each expert alone, and is a floor that routing has to beat."""

from __future__ import annotations

from toolorchestra.agents.policies.baselines import Baseline, last_result, tool_of, uses
from toolorchestra.agents.policies.plans import ANSWER
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.domains.source import TaskSource
from toolorchestra.envs.episode.episode import Episode

PREFIX = "always:"


def always(alias: str) -> Baseline:
    """Asks the expert behind an alias at once, and hands in what it says."""

    def rule(episode: Episode) -> str:
        tool = tool_of(episode, *ANSWER)
        if tool is None or alias not in tool.keys:
            raise ConfigError(no_such("expert to ask", alias, tool.keys if tool is not None else ()))
        submit = tool_of(episode, "submit")
        if submit is not None and uses(episode, tool):
            return render_call(submit.name, {"answer": last_result(episode)})
        return render_call(tool.name, {"model": alias})

    return rule


def always_refusal(name: str, source: TaskSource) -> str:
    """Why it cannot play a source's tasks, or ""."""
    alias = name.removeprefix(PREFIX)
    tools = source.config.tools if isinstance(source, QaSource) else ()
    asked = [offer.alias for entry in tools if entry.kind in ANSWER for offer in entry.offers]
    if alias in asked:
        return ""
    return f"policy {name!r} asks one expert for the answer; {no_such('expert to ask', alias, asked)}"
