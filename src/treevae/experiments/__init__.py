"""The paper's experiments: runs by its recipes, recorded with all that is needed to judge and to repeat them."""
