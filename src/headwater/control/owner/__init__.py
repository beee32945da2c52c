"""The owner of an app: finds a steward, keeps what it has agreed to, answers for the app."""
