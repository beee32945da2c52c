"""The DEBS 2015 Grand Challenge: what New York's taxi trips say of the city as they end."""
