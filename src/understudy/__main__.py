"""``python -m understudy``."""
