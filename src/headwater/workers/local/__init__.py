"""The pool on the node's own machine: Spark tasks, or threads, that run turns."""
