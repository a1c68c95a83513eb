"""ToolOrchestra: Gymnasium environments for tool orchestration, and an agent trainer. Importing registers the ids."""

from toolorchestra.envs.registration import register_all

__version__ = "0.1.0"

register_all()
