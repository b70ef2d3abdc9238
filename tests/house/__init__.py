"""The house rules that a program can check; the layers are checked by ``make check``."""
