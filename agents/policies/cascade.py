"""A cascade as in FrugalGPT (arXiv 2305.05176): ask the cheap ones first, and go on to dearer ones by a stated rule.

The rule: the cheapest searcher searches until nothing new comes; where experts can be asked, they are asked from the
cheapest up until two give the same answer; where asking ends the task, programs are written from the cheapest writer up
until two print the same; then the cheapest expert answers if they agreed, and the dearest if not.
"""

from __future__ import annotations

from toolorchestra.agents.policies.baselines import last_result, results, searched, tool_of, uses
from toolorchestra.agents.policies.plans import ANSWER, CODE, OWN, SEARCH, by_cost, call
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models.simulated import RESULT_MARK
from toolorchestra.envs.tools import Tool


def cascade(episode: Episode) -> str:
    """The next move by the rule above."""
    search, code, answer = (tool_of(episode, *kinds) for kinds in (SEARCH, CODE, ANSWER))
    if answer is None:
        raise ConfigError(f"nothing among {[t.name for t in episode.world.toolbox]} asks an expert for the answer")
    if search is not None and not searched(episode, search):
        return call(episode, search, next(iter(by_cost(episode, search)), OWN))
    if answer.kind == "ask":
        return _asked_upwards(episode, answer)
    printed = [text for text in results(episode) if text.startswith(RESULT_MARK)]
    agreed = len(set(printed)) < len(printed)
    writers = by_cost(episode, code)
    if code is not None and not agreed and uses(episode, code) < len(writers):
        return call(episode, code, writers[uses(episode, code)])
    answerers = by_cost(episode, answer)
    return call(episode, answer, answerers[0] if agreed else answerers[-1])


def _asked_upwards(episode: Episode, answer: Tool) -> str:
    """Ask from the cheapest up until two agree; what the last one said is submitted."""
    given = list(results(episode))[-uses(episode, answer) :] if uses(episode, answer) else []
    submit, answerers = tool_of(episode, "submit"), by_cost(episode, answer)
    if len(given) < len(answerers) and len({text.strip().lower() for text in given}) == len(given):
        return call(episode, answer, answerers[len(given)])
    text = last_result(episode)
    return render_call(submit.name, {"answer": text}) if submit is not None else text
