"""What several processes agree on: each store, the election, and how things end."""
