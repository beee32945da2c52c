"""Links between real nodes, and between users and nodes: authenticated, bounded, and every refusal is counted."""
