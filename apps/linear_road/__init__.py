"""Linear Road: tolls that follow the traffic, and warnings of accidents, on the expressways of an imagined city."""
