"""What nodes say to one another, typed and limited; and the events and effects of their machines."""
