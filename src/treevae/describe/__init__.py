"""What a fitted tree says of samples, in numbers and names, for pictures and pages alike."""
