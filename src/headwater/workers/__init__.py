"""Workers, which run turns on this machine or on others, and the pools that they come from."""
