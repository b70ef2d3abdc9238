"""The only room that knows PySpark: sessions, the JVM, progress, settings."""
