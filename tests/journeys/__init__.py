"""Real clusters of real processes, with real signals; most with the session-less driver."""
