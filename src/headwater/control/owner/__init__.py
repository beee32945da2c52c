"""The owner of an app: finds a steward, stores the placement that it has agreed to, answers for the app."""
