"""Recorded outcomes of real models: rows of (task, model, run) with success, seconds, tokens and dollars."""
