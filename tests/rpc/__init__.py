"""Links between processes: what gets through, and what must not."""
