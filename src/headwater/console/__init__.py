"""The `headwater` command: what a person types, sees and pipes into other programs."""
