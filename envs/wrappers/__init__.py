"""Gymnasium wrappers: classical agents' views of an episode, recording, and vector rewards."""

from toolorchestra.envs.wrappers.discrete_routing import DiscreteRouting, RoutingFeatures
from toolorchestra.envs.wrappers.record import RecordTrajectories, read_trajectories, reset_to_recorded
from toolorchestra.envs.wrappers.routing import Routing
from toolorchestra.envs.wrappers.routing_vector import RoutingVectorEnv
from toolorchestra.envs.wrappers.vector_reward import VectorReward

__all__ = [
    "DiscreteRouting",
    "RecordTrajectories",
    "Routing",
    "RoutingFeatures",
    "RoutingVectorEnv",
    "VectorReward",
    "read_trajectories",
    "reset_to_recorded",
]
