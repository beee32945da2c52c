"""The engines that `bench.peers` compares, each in a process of its own, and what feeds and watches them."""
