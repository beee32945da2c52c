"""The control plane: owners answer for apps, stewards place them, hosts run them and carry rows. Pure machines."""
