"""The small topologies of Storm's starter set, which DART deploys by the hundred."""
