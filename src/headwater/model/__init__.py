"""Values that every room uses: errors, ids, durations, keys and the form of a stored batch. Imports no other room."""
