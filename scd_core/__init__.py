"""Self-Contrastive Decorrelation: one training run, from recipe to scored model.

Knows nothing of Ray or Optuna; ``search`` and ``reproduce`` build on it.
"""
