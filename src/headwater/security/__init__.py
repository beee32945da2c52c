"""Identities and roles: the certificate authority, and what a certificate says of its holder."""
