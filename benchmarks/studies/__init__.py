"""What a choice does to the figures."""
