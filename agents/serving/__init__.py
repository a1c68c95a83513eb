"""Starts servers of models."""
