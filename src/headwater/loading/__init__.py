"""From a user's file or name to a verified flow."""
