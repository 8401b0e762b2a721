"""Hyperparameter search: Optuna proposes, Ray Tune runs, the driver alone writes MLflow."""
