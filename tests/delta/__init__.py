"""Safe writes to real Delta tables: needs Maven, and a PySpark that Delta is there for."""
