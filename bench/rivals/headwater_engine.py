"""Headwater under measurement: the applications as they ship, on one node whose workers are Spark tasks."""

import sys
from collections.abc import Sequence

from bench.rivals.flows import SinkRecording, measured_flow
from bench.rivals.serving import Recording, Request, serve
from headwater.runtime.node import Node
from headwater.workers.config import NodeConfig


def run(node: Node, request: Request) -> Sequence[Recording]:
    """Run copies of an application side by side until their inputs end."""
    flows = [measured_flow(request, copy) for copy in range(len(request.ports))]
    apps = [node.deploy(one) for one, _ in flows]
    try:
        for app in apps:
            node.wait(app)
            if app.error is not None:
                raise app.error
    finally:
        for app in apps:
            node.remove(app.name)
    return [SinkRecording(sink) for _, sinks in flows for sink in sinks]


def main(answers: str, workers: str = "spark") -> None:
    """Start a node as a user does, and serve; `threads` instead of Spark's tasks are for tests."""
    with Node(NodeConfig(spark=workers == "spark")) as node:
        serve(int(answers), lambda request: run(node, request))


if __name__ == "__main__":
    main(*sys.argv[1:])
