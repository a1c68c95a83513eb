"""Tasks whose outcomes were recorded with real models: a choice of model takes a recorded run. Nothing is simulated."""
