"""A process of the A/A experiment on the stub driver: a program is named by its launches a request, ``6`` or ``6,30``.

``6p`` has arrivals that are drawn, ``bad`` cannot be made.
"""

import sys
from pathlib import Path

from bench.gpu_share_aa_client import Client, Maker, Request
from tests.native.stub_driver import Stub

KERNEL_NS = 20_000


def main() -> None:
    """Do what the control says."""
    folder, name, wanted = Path(sys.argv[1]), sys.argv[2], sys.argv[4].split(",")
    stub = Stub()
    kernel = stub.kernel("spin", KERNEL_NS)

    def maker(named: str) -> Maker:
        def make() -> Request:
            launches = int(named.rstrip("p"))

            def request() -> int:
                for _ in range(launches):
                    stub.launch(kernel)
                return launches

            return request

        return make

    programs = [(maker(each), -0.5 if each.endswith("p") else 0.0) for each in wanted]
    Client(folder, name, programs, stub.wait, lambda: stub.wait).serve()


if __name__ == "__main__":
    main()
