"""Nexmark: queries over the bids, auctions and people of an auction site."""
