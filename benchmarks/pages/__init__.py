"""The tables of the pages of evidence, written from the records."""
