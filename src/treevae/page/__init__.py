"""The page that shows a fitted model in a browser: one HTML file with all it needs."""
