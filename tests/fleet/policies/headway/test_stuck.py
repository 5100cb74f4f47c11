"""A world that hypothesis found: tasks that wait beside an idle process that two of them together do not fit."""

from dataclasses import replace

from headway.fleet.model.catalogue import Catalogue, Configuration, Function, Model, Profile
from headway.fleet.model.fleet import Fleet, Gpu, Links, Prices, Worker
from headway.fleet.model.graph import Graph, Task
from headway.fleet.model.request import Request
from headway.fleet.model.rows import Kind
from headway.fleet.policies.registry import build
from tests.fleet.worlds import World, drive

WORLD = World(
    catalogue=Catalogue(
        models=(Model(name="m0", size_bytes=0),),
        functions=(
            Function(
                name="f0",
                models=(0,),
                profile=Profile(times={"": {Configuration(batch=1, cpus=1, slices=1): 235000345}}, spread=0.0),
                cold_start=0,
                instance_bytes=0,
                activation_bytes=1,
            ),
            Function(
                name="f1",
                models=(),
                profile=Profile(
                    times={
                        "T4": {
                            Configuration(batch=1, cpus=1, slices=1): 314000780,
                            Configuration(batch=2, cpus=1, slices=1): 533801326,
                            Configuration(batch=4, cpus=1, slices=1): 973402418,
                        },
                        "A100": {
                            Configuration(batch=1, cpus=1, slices=1): 628001560,
                            Configuration(batch=2, cpus=1, slices=1): 1_067_602_652,
                            Configuration(batch=4, cpus=1, slices=1): 1_946_804_836,
                        },
                    },
                    spread=0.0,
                ),
                cold_start=2_000_000_000,
                instance_bytes=500000000,
                activation_bytes=60000000,
            ),
            Function(
                name="f2",
                models=(0,),
                profile=Profile(
                    times={
                        "T4": {
                            Configuration(batch=1, cpus=1, slices=1): 317000384,
                            Configuration(batch=2, cpus=1, slices=1): 538900653,
                            Configuration(batch=4, cpus=1, slices=1): 982701190,
                        },
                        "A100": {
                            Configuration(batch=1, cpus=1, slices=1): 634000768,
                            Configuration(batch=2, cpus=1, slices=1): 1_077_801_306,
                            Configuration(batch=4, cpus=1, slices=1): 1_965_402_381,
                        },
                    },
                    spread=0.2,
                ),
                cold_start=0,
                instance_bytes=500000000,
                activation_bytes=60000000,
            ),
            Function(
                name="f3",
                models=(0,),
                profile=Profile(
                    times={
                        "T4": {
                            Configuration(batch=1, cpus=1, slices=1): 107000173,
                            Configuration(batch=1, cpus=2, slices=1): 86911147,
                            Configuration(batch=2, cpus=1, slices=1): 181900294,
                            Configuration(batch=2, cpus=2, slices=1): 147748950,
                        },
                        "A100": {
                            Configuration(batch=1, cpus=1, slices=1): 214000346,
                            Configuration(batch=1, cpus=2, slices=1): 173822294,
                            Configuration(batch=2, cpus=1, slices=1): 363800588,
                            Configuration(batch=2, cpus=2, slices=1): 295497900,
                        },
                    },
                    spread=0.0,
                ),
                cold_start=0,
                instance_bytes=500000000,
                activation_bytes=60000000,
            ),
        ),
        graphs=(
            Graph(
                name="g0",
                tasks=(
                    Task(name="t0", function=0, input_bytes=0, output_bytes=3000000),
                    Task(name="t1", function=2, input_bytes=3000000, output_bytes=2000),
                ),
                edges=(),
            ),
            Graph(name="g1", tasks=(Task(name="t0", function=0, input_bytes=3000000, output_bytes=2000),), edges=()),
            Graph(
                name="g2",
                tasks=(
                    Task(name="t0", function=3, input_bytes=2000, output_bytes=2000),
                    Task(name="t1", function=0, input_bytes=0, output_bytes=0),
                    Task(name="t2", function=1, input_bytes=3000000, output_bytes=0),
                    Task(name="t3", function=1, input_bytes=3000000, output_bytes=2000),
                    Task(name="t4", function=3, input_bytes=2000, output_bytes=3000000),
                ),
                edges=((0, 2), (0, 3), (0, 4), (1, 4)),
            ),
        ),
    ),
    fleet=Fleet(
        workers=(
            Worker(
                name="w0",
                gpu=Gpu(type="A100", memory_bytes=60000000, slices=1, geometry="free"),
                cpus=3,
                host_bytes=4_611_686_018_427_387_904,
                host=1,
                rack=1,
                hour_usd=3.5,
            ),
            Worker(
                name="w1",
                gpu=Gpu(type="A100", memory_bytes=2_060_000_000, slices=1, geometry="free"),
                cpus=3,
                host_bytes=0,
                host=2,
                rack=0,
                hour_usd=None,
            ),
        ),
        links=Links(
            host_to_gpu=10_415_295_692,
            disk_to_host=2_147_483_648,
            within_host=12_884_901_888,
            within_rack=12_884_901_888,
            between_racks=268435456,
            latency=2000,
            write_back=True,
        ),
        prices=Prices(cpu_hour=0.034, slice_hour=0.67, memory_gib_hour=0.0044),
        keep_alive=600_000_000_000,
    ),
    requests=(Request(id=0, graph=2, arrival=5000000, ingress=1, deadline=5000001, tenant=1),),
    outages=(),
    push_interval=10000000,
    preloaded=True,
    seed=3,
    interference={(2, 1): 1403642, (2, 2): 1785421},
    central=None,
)


def test_tasks_that_do_not_fit_beside_an_idle_process_get_one_elsewhere() -> None:
    run = drive(build("headway(drop=off)"), replace(WORLD, central=True))
    assert len(run.rows(Kind.DONE)) == 1
