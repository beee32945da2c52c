"""The cases of PySpark's own tests for stateful processors, stated anew; docs/transform-with-state.md lists them."""
