"""A package beside the script, with data in it."""
