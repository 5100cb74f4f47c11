"""Two policies and one of one's own: python examples/api/compare.py examples/slurm/{sacct,nodes}.txt"""

import sys

import headway as hw
from headway.jobs import Order


class Smallest(Order):  # the fewest GPUs first
    name = "smallest"

    def key(self, now, js):
        return js.job.gpus


work = hw.Jobs(sys.argv[1], cluster=sys.argv[2])
print(hw.compare(work, ["fifo", "srtf+easy", Smallest]).jobs().select("policy", "name", "jct_s"))
