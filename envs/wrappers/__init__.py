"""Gymnasium wrappers: classical agents' views of an episode, recording, and vector rewards."""

from toolorchestra.envs.wrappers.discrete_routing import DiscreteRouting, RoutingFeatures
from toolorchestra.envs.wrappers.record import RecordTrajectories, read_trajectories
from toolorchestra.envs.wrappers.vector_reward import VectorReward

__all__ = ["DiscreteRouting", "RecordTrajectories", "RoutingFeatures", "VectorReward", "read_trajectories"]
