"""The recipe: stages, the one training loop, growing. Nothing here knows of scikit-learn or of pictures."""
