"""What goes in: arrays, files and the demo's pictures."""
