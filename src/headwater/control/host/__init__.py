"""The host of instances: what runs here, rows on their way, and instances that move."""
