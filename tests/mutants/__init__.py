"""Named faults put into the shipped code, each of which a test must notice: ``make mutants``."""
