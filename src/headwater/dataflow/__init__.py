"""What the user wants: the Flow API, and the immutable graph it is compiled to."""
