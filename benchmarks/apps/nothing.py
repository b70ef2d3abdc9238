"""A main without jobs: what an application costs beside what it does."""
