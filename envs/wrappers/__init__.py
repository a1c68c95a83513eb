"""Gymnasium wrappers: classical agents' views of an episode, recording, and vector rewards."""

from toolorchestra.envs.wrappers.record import RecordTrajectories, read_trajectories, reset_to_recorded
from toolorchestra.envs.wrappers.routing import Routing, RoutingVectorEnv, make_routing_vec
from toolorchestra.envs.wrappers.vector_reward import VectorReward

__all__ = [
    "RecordTrajectories",
    "Routing",
    "RoutingVectorEnv",
    "VectorReward",
    "make_routing_vec",
    "read_trajectories",
    "reset_to_recorded",
]
