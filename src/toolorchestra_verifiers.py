"""The name by which verifiers finds the environments: `vf-eval toolorchestra-verifiers`.

verifiers looks for a top-level module and reads its `__all__`. The code is toolorchestra.envs.adapters.verifiers.
"""

from typing import Self

from pydantic import model_validator

from toolorchestra.envs.adapters.verifiers import ToolOrchestraConfig, ToolOrchestraHarness, ToolOrchestraTaskset, vf
from toolorchestra.envs.base.errors import ConfigError

__all__ = ["ToolOrchestraEnv", "ToolOrchestraHarness", "ToolOrchestraTaskset"]


class ToolOrchestraEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())

    @model_validator(mode="after")
    def _can_be_played(self) -> Self:
        """What is wrong is said before a rollout starts."""
        if isinstance(self.taskset, ToolOrchestraConfig):
            next(iter(ToolOrchestraTaskset(self.taskset)))
        harness = self.agent.harness
        if harness is not None and harness.id.replace("_", "-") != "toolorchestra-verifiers":
            raise ConfigError("these tasks are played by their own harness; leave out --env.agent.harness.id")
        return self


class ToolOrchestraEnv(vf.Env[ToolOrchestraEnvConfig]):
    """One agent. It runs no programs, so it is given no sandbox."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        await agents.agent.run(task)
