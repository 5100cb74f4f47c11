"""A process of a pair on the stub driver: as bench.gpu_share_client, with kernels of 20 microseconds for networks.

A program is named by its launches a request: ``6``.
"""

import sys
from functools import partial
from pathlib import Path

from tests.native.stub_driver import Stub, serve

KERNEL_NS = 20_000


def main() -> None:
    """Do what the control says."""
    folder, name, wanted = Path(sys.argv[1]), sys.argv[2], sys.argv[4].split(",")
    stub = Stub()
    kernel = stub.kernel("spin", KERNEL_NS)

    def request(launches: int) -> None:
        for _ in range(launches):
            stub.launch(kernel)
        stub.wait()

    serve(folder, name, [partial(request, int(each)) for each in wanted], stub)


if __name__ == "__main__":
    main()
