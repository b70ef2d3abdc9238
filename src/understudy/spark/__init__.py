"""The only package that imports PySpark: sessions, the JVM, progress, settings, file formats."""
