"""Bytewax under measurement: a process for each application, as its guide runs them.

No recovery store is set up: nothing survives a crash, which is the faster way to run it.
"""

import sys
from collections.abc import Sequence

from bytewax.run import cli_main

from bench.rivals.bytewax_flows import FLOWS
from bench.rivals.serving import Recording, Request, serve


def run(request: Request) -> Sequence[Recording]:
    """Run an application until its input ends."""
    (port,) = request.ports
    recorder = request.recorder(0)
    cli_main(FLOWS[request.contest](port, recorder, request.settings))
    return [recorder]


def main(answers: str) -> None:
    """Serve."""
    serve(int(answers), run)


if __name__ == "__main__":
    main(*sys.argv[1:])
