"""Torch modules whose parameters and buffers are views into one range of memory.

A module is built once as a sketch: on torch's meta device, without values, where that can be done, so that only one
worker of a machine ever initialises weights; a function that names a device (``device="cpu"``), reads values, or keeps
tensors outside its module is called with values in every worker. Its tensors are then bound to the range, for the
worker's life. Torch is imported when a module is at hand.
"""

import gc
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from headway.fleet.live.weights.safetensors import Entry, aligned, placed

_TYPES = {"bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "bfloat16": "BF16", "complex64": "C64"}
_TYPES |= {f"{kind}{bits}": f"{kind[0].upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_TYPES |= {f"float{bits}": f"F{bits}" for bits in (16, 32, 64)}
_NAMES = {short: name for name, short in _TYPES.items()}


def is_module(value: Any) -> bool:
    """Return whether a value is a torch module; without torch there is none."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


class Skeleton:
    """A module, and the place of each of its tensors."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self._tensors: dict[str, Any] = {}
        self._slots: list[tuple[dict[str, Any], str, str]] = []
        """Where the module keeps each tensor, and under which name it is placed; tied ones share a name."""
        names: dict[int, str] = {}
        for table, key, path in _registered(module):
            tensor = table[key]
            name = names.setdefault(id(tensor), path)
            self._tensors[name] = tensor
            self._slots.append((table, key, name))
        self.entries: tuple[Entry, ...] = placed(
            Entry(name, _dtype(tensor), tuple(tensor.shape)) for name, tensor in self._tensors.items()
        )
        self.size_bytes = aligned(max((entry.end for entry in self.entries), default=0)) or 1

    def values(self) -> Mapping[str, memoryview]:
        """Return the bytes of each tensor."""
        return {name: _bytes(tensor) for name, tensor in self._tensors.items()}

    def bind(self, flat: Any) -> None:
        """Make each tensor a view into a range of bytes. What they held before is dropped."""
        import torch

        views = {}
        for entry in self.entries:
            part = flat[entry.begin : entry.end].view(getattr(torch, _NAMES[entry.dtype]))
            views[entry.name] = part.reshape(entry.shape)
        for table, key, name in self._slots:
            tensor = table[key]
            if not tensor.is_meta:
                tensor.requires_grad_(False).data = views[name]  # whoever else has a hold of it sees it too
            else:
                if isinstance(tensor, torch.nn.Parameter) and not isinstance(views[name], torch.nn.Parameter):
                    views[name] = torch.nn.Parameter(views[name], requires_grad=False)
                table[key] = views[name]
        self._tensors.clear()
        self._slots.clear()

    def empty(self) -> None:
        """Drop the values of the tensors, which are bound later."""
        import torch

        for tensor in self._tensors.values():
            if not tensor.is_meta:
                tensor.requires_grad_(False).data = torch.empty(0, dtype=tensor.dtype)


def _registered(module: Any) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield each parameter and buffer of a module and its parts: the table it is in, its key there, its full name."""
    for prefix, part in module.named_modules():
        for table in (part._parameters, part._buffers):
            for key, tensor in table.items():
                if tensor is not None:
                    yield table, key, f"{prefix}.{key}" if prefix else key


def _dtype(tensor: Any) -> str:
    """Return the type of a tensor's numbers; raise TypeError where its bytes cannot be laid out."""
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    plain = tensor.layout is torch.strided and not tensor.is_quantized and not torch.nn.parameter.is_lazy(tensor)
    if name not in _TYPES or not plain or type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise TypeError(f"a {type(tensor).__name__} of {name}")
    return _TYPES[name]


def _bytes(tensor: Any) -> memoryview:
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()).cast("B")


def skeleton(value: Any) -> Skeleton | None:
    """Return the skeleton of a model; None where it is no module, or has tensors that cannot be laid out."""
    try:
        return Skeleton(value) if is_module(value) else None
    except TypeError:
        return None


def sketched(build: Callable[[], Any]) -> Skeleton | None:
    """Return the skeleton of a model without its values; None where it cannot be built that way."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    others = [each for each in _tensors(torch, gc.get_objects()) if each.is_meta]  # sketches of other models
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            found = skeleton(build())
    except Exception:  # noqa: BLE001 - whatever a user's code raises when tensors have no values
        return None
    return found if found is not None and not _elsewhere(torch, found, others) else None


def _elsewhere(torch: Any, found: Skeleton, others: list[Any]) -> bool:
    """Return whether tensors without values are kept elsewhere than in the module: nothing would fill them."""
    gc.collect()
    bound = {id(tensor) for tensor in (*found._tensors.values(), *others)}
    return any(each.is_meta and id(each) not in bound for each in _tensors(torch, gc.get_objects()))


def _tensors(torch: Any, objects: Iterable[object]) -> Iterator[Any]:
    return (each for each in objects if issubclass(type(each), torch.Tensor))
