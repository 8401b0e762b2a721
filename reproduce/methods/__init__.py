"""The methods in the paper's tables, each ``base.Method``: fitted on text, then an ``Encode``."""
