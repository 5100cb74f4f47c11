"""Application of ``bench.gpu_serve_fault``: a small network on a GPU; a request may ask for an illegal address.

Without a GPU it reads address 0, which ends the process.
"""

import ctypes

import torch

import headway as hw

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry wild() {
    .reg .u64 %a;
    .reg .u32 %v;
    mov.u64 %a, 16;
    mov.u32 %v, 1;
    st.global.u32 [%a], %v;
    ret;
}
"""


def go_astray():
    """Write to an address that is nobody's, in a kernel of this process's context."""
    if not torch.cuda.is_available():
        ctypes.string_at(0)
    driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"wild") == 0
    assert driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
    torch.cuda.synchronize()


@hw.model(memory="40MB")
def net():
    """Build the network."""
    torch.manual_seed(1)
    return torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8)))


@hw.task(models=[net], max_batch=4, example=lambda n: [{"n": 0}] * n)
def work(model, orders):
    """Run the network on rows of ones; do what an order asks for first."""
    if any(order.get("astray") for order in orders):
        go_astray()
    device = next(model.parameters()).device
    with torch.inference_mode():
        found = model(torch.ones(len(orders), 1024, device=device)).sum(dim=1).cpu()
    assert bool(torch.isfinite(found).all())
    return orders


small = hw.graph("small", work, slo="2s")
