"""Who somebody is and what they may do: the authority, identities, signatures."""
