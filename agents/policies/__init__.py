"""Policies that need no training: the baselines that every learned one is held against."""
