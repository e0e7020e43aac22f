"""What a rework of the house changed, and what it must not change."""
