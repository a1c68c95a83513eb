"""Policies, rewards, rollouts and the trainer. torch only under engines/."""
