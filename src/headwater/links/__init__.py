"""Links between real nodes, and between users and nodes: certified, bounded, and telling of what they refuse."""
