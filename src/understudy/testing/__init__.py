"""What users import to test their own pipelines under failure."""
