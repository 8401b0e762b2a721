"""Scores of a sentence encoder: the tasks, their protocol and what a score carries."""
