"""What the benchmark tells its agents and its simulated users, put together from the package's own texts."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from toolorchestra.envs.domains.tau2 import package
from toolorchestra.envs.domains.tau2.conversation_log import Said
from toolorchestra.envs.domains.tau2.domain import Tau2Domain
from toolorchestra.envs.domains.tau2.task import Tau2Task

GREETING = Said("assistant", "Hi! How can I help you today?")
"""What the benchmark's agent says before it is asked anything."""
_GUIDELINES = ("simulation_guidelines.md", "simulation_guidelines_tools.md")
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
    return template.format(global_user_sim_guidelines=_guidelines(bool(domain.user_tools)), instructions=scenario)


@lru_cache(maxsize=2)
def _guidelines(tools: bool) -> str:
    path = package.root() / "data" / "tau2" / "user_simulator" / _GUIDELINES[tools]
    return path.read_text(encoding="utf-8")


def guidelines_digest(tools: bool) -> str:
    """Says in results which guidelines a simulated user followed."""
    return f"sha256:{hashlib.sha256(_guidelines(tools).encode()).hexdigest()[:12]}"
