"""GAIA over the user's copy: questions with attachments, graded by its quasi-exact match."""
