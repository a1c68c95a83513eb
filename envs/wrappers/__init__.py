"""Gymnasium wrappers: classical agents' views of an episode, and recording."""

from toolorchestra.envs.wrappers.record import RecordTrajectories, read_trajectories, reset_to_recorded
from toolorchestra.envs.wrappers.routing import Routing, RoutingVectorEnv, make_routing_vec

__all__ = [
    "RecordTrajectories",
    "Routing",
    "RoutingVectorEnv",
    "make_routing_vec",
    "read_trajectories",
    "reset_to_recorded",
]
