"""The domain folders of ToolScale's reference, played where the user has them: Python toolkits over a JSON database.

Above `tau2`, whose episode, users and grading they share. Nothing of a folder runs before its user says so.
"""
