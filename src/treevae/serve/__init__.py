"""The live explorer: the report's page, and the calls behind it that need the model."""
