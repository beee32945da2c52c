"""Drawing a graph as an SVG picture."""
