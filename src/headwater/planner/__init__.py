"""What should be where: pure decisions from a snapshot, which others carry out."""
