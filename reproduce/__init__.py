"""The paper's tables from MLflow runs, every cell with its evidence."""
