"""Hyperparameter search: grids in stages, run by Ray Tune; the driver alone writes the books."""
