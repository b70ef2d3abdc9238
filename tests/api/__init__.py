"""What is shown: over REST, on a terminal, in logs, and to whom events are posted."""
