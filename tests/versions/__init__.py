"""One short journey on each PySpark and each Java that we say works; it writes docs/versions.md."""
