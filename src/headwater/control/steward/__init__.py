"""A steward of a zone: takes apps into its register, places and starts their instances, keeps them running."""
