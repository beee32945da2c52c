"""What happens to rows. An operator is frozen configuration; opened in a worker it becomes the logic that runs."""
