"""Other ways to find groups, to compare with; the same words as the estimator."""
