"""The programs of the pairs: networks with random weights, each a function that does one request."""

from collections.abc import Callable
from typing import Any

import torch

Request = Callable[[], "torch.Tensor"]


def _vision(name: str) -> Request:
    import torchvision

    torch.manual_seed(1)
    extra: dict[str, Any] = {"init_weights": False} if name == "googlenet" else {}
    model = getattr(torchvision.models, name)(weights=None, **extra).cuda().eval()
    image = torch.randn(1, 3, 224, 224, device="cuda")

    def request() -> torch.Tensor:
        out: torch.Tensor = model(image)
        return out

    return request


def _bert() -> Request:
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    model = BertModel(BertConfig(attn_implementation="sdpa")).cuda().eval()
    words = torch.randint(0, 30000, (1, 128), device="cuda")

    def request() -> torch.Tensor:
        out: torch.Tensor = model(words).pooler_output
        return out

    return request


def _gpt2() -> Request:
    """A decoder loop: eight tokens, each chosen on the GPU and read back, with the keys and values kept."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")).cuda().eval().half()
    prompt = torch.randint(0, 50000, (1, 64), device="cuda")

    def request() -> torch.Tensor:
        words, kept, token = prompt, None, None
        for _ in range(8):
            out = model(words, past_key_values=kept, use_cache=True)
            kept = out.past_key_values
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            token.item()
            words = token
        assert token is not None
        return token

    return request


def _compiled() -> Request:
    import torchvision

    torch.manual_seed(1)
    model = torch.compile(torchvision.models.resnet18(weights=None).cuda().eval())
    image = torch.randn(1, 3, 224, 224, device="cuda")

    def request() -> torch.Tensor:
        out: torch.Tensor = model(image)
        return out

    return request


def _graph(name: str, batch: int, half: bool) -> Request:
    import torchvision

    torch.manual_seed(1)
    model = getattr(torchvision.models, name)(weights=None).cuda().eval()
    image = torch.randn(batch, 3, 224, 224, device="cuda")
    if half:
        model, image = model.half(), image.half()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(image)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(image)
    held = (model, image)  # the graph reads their memory: it must not go to anybody else

    def request() -> torch.Tensor:
        assert held
        graph.replay()
        return out

    return request


def _batch(name: str, batch: int) -> Request:
    import torchvision

    torch.manual_seed(1)
    model = getattr(torchvision.models, name)(weights=None).cuda().eval().half()
    image = torch.randn(batch, 3, 224, 224, device="cuda").half()

    def request() -> torch.Tensor:
        out: torch.Tensor = model(image)
        return out

    return request


def _bert_batch() -> Request:
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    model = BertModel(BertConfig(attn_implementation="sdpa")).cuda().eval().half()
    words = torch.randint(0, 30000, (32, 128), device="cuda")

    def request() -> torch.Tensor:
        out: torch.Tensor = model(words).pooler_output
        return out

    return request


MARKED = (1, 3, 12, 24)
"""Steps of the training whose losses are kept: each hangs on every weight of all steps before."""
LOSSES: "dict[int, torch.Tensor]" = {}


def marked() -> str:
    """The losses of the marked steps, to the last bit; nothing as long as one is missing."""
    if len(LOSSES) < len(MARKED):
        return ""
    return " ".join(float(LOSSES[step].item()).hex() for step in MARKED)


def _training() -> Request:
    import torchvision

    torch.manual_seed(1)
    model = torchvision.models.resnet50(weights=None).cuda().train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    image = torch.randn(64, 3, 224, 224, device="cuda")
    label = torch.randint(0, 1000, (64,), device="cuda")
    loss_of = torch.nn.CrossEntropyLoss()
    steps = 0

    def request() -> torch.Tensor:
        nonlocal steps
        # The same sums in the same order each time: what comes of it can be compared bit for bit.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = loss_of(model(image), label)
            loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        steps += 1
        if steps in MARKED:
            LOSSES[steps] = loss.detach().clone()
        return loss.detach()

    return request


def _matmul() -> Request:
    torch.manual_seed(1)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)

    def request() -> torch.Tensor:
        torch.mm(a, b, out=out)
        return out

    return request


HIGH: dict[str, Callable[[], Request]] = {
    "alexnet": lambda: _vision("alexnet"),
    "vgg16": lambda: _vision("vgg16"),
    "resnet50": lambda: _vision("resnet50"),
    "googlenet": lambda: _vision("googlenet"),
    "densenet201": lambda: _vision("densenet201"),
    "vit": lambda: _vision("vit_b_16"),
    "bert": _bert,
    "gpt2": _gpt2,
    "compiled": _compiled,
    "graph": lambda: _graph("resnet50", 1, False),
}
LOW: dict[str, Callable[[], Request]] = {
    "resnet101-b64": lambda: _batch("resnet101", 64),
    "bert-b32": _bert_batch,
    "training": _training,
    "matmul": _matmul,
    "graph-b64": lambda: _graph("resnet50", 64, True),
}
