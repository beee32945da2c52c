"""The three applications of four stages with which DART shows how operators scale."""
