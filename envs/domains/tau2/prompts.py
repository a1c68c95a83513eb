"""What the benchmark tells its agents and its simulated users, put together from the package's own texts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2 import package
from toolorchestra.envs.domains.tau2.conversation_log import Said
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.release import Release
from toolorchestra.envs.domains.tau2.task import Tau2Task

GREETING = Said("assistant", "Hi! How can I help you today?")
"""What the benchmark's agent says before it is asked anything."""
_GUIDELINES = ("simulation_guidelines.md", "simulation_guidelines_tools.md")
_NO_PERSONA = "<PERSONA_GUIDELINES>"
"""Where upstream puts a persona that is chosen at run time; none is, as there by default."""
_PLACEHOLDER = re.compile(r"<[A-Z]+(?:_[A-Z]+)+>|\{\{?\w+\}\}?")
_TICKET = "<ticket>"


@lru_cache(maxsize=32)
def agent_message(domain: Tau2Domain) -> str:
    """The agent's system message, which carries the policy. The ticket of one who works alone is a message of its own:
    chat templates want one beside the system's."""
    kind = "SOLO_" if domain.solo else ""
    instruction = package.text_constant("agent.llm_agent", f"AGENT_{kind}INSTRUCTION")
    template = package.text_constant("agent.llm_agent", f"SYSTEM_PROMPT{kind and '_SOLO'}").partition(_TICKET)[0]
    if domain.solo:
        instruction = instruction.format(stop_function_name="done", stop_token="###STOP###")
    return template.format(agent_instruction=instruction, domain_policy=domain.policy).rstrip()


def ticket_message(plan: Tau2Task) -> str:
    """The task of an agent that works alone."""
    return f"{_TICKET}\n{plan.ticket}\n</ticket>"


def user_message(domain: Tau2Domain, plan: Tau2Task) -> str:
    """The system message of a user that a model plays."""
    scenario = package.member("data_model.tasks:UserScenario").model_validate(plan.scenario)
    template = package.text_constant("user.user_simulator", "SYSTEM_PROMPT")
    return template.format(global_user_sim_guidelines=guidelines(domain), instructions=scenario)


@lru_cache(maxsize=32)
def guidelines(domain: Tau2Domain) -> str:
    """What the release tells simulated users. Raises ConfigError where its own code would fill something in."""
    path = domain.release.guidelines(_GUIDELINES[bool(domain.user_tools)])
    text = path.read_text(encoding="utf-8").replace(_NO_PERSONA, "")
    if left := _PLACEHOLDER.search(text):
        raise ConfigError(
            f"{path}: {left.group()} is filled in by that release's own code, which is not run; take user='scripted' "
            "or 'replay', or a release up to 1.0.1"
        )
    return text


def unlike_the_release(release: Release) -> Mapping[str, str]:
    """What results say of the prompt where the release's own code puts it together otherwise."""
    return {"prompt": "as before 2.0"} if release.number >= (2,) else {}


def guidelines_digest(domain: Tau2Domain, settings: Mapping[str, Any]) -> str:
    """Says in results which guidelines a simulated user followed, and whether it was asked otherwise than in the
    benchmark."""
    text = guidelines(domain) + (json.dumps(settings, sort_keys=True) if settings else "")
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
