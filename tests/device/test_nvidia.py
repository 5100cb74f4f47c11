"""The GPUs of a machine, as nvidia-smi or NVML tell of them; and the lines where there is none."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.device import nvidia as gpus
from headway.errors import ShareError
from tests.gpu.share.shares import program_at

TWO = "0, GPU-aa, NVIDIA H200, 580.1, 143771, Default\\n1, GPU-bb, NVIDIA H200, 580.1, [N/A], Exclusive_Process"


@pytest.fixture(autouse=True)
def _no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)


def test_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program_at(tmp_path / "bin" / "nvidia-smi", f"print('{TWO}')")
    first, second = gpus.gpus()
    assert first == gpus.Gpu(0, "GPU-aa", "NVIDIA H200", "580.1", 143771 << 20, "Default")
    assert (second.memory_bytes, second.compute_mode) == (0, "Exclusive_Process")
    assert gpus.chosen(None).index == 0
    assert gpus.chosen(1).uuid == "GPU-bb"
    for visible in ("1", "GPU-b", "GPU-bb,GPU-aa"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert gpus.chosen(None).index == 1
    assert gpus.chosen(0).index == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(ShareError, match="CUDA_VISIBLE_DEVICES=7 names no GPU here"):
        gpus.chosen(None)
    with pytest.raises(ShareError, match="--gpu 2: there is no such GPU here"):
        gpus.chosen(2)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "import sys; print('No devices were found'); sys.exit(6)",
            "nvidia-smi failed and said 'No devices were found'",
        ),
        ("import sys; sys.exit(9)", r"nvidia-smi failed and said nothing \(status 9\): the driver"),
        ("pass", "no GPU is here"),
        ("print('what?')", "that is not index,uuid"),
    ],
)
def test_what_nvidia_smi_may_say_instead(tmp_path: Path, body: str, line: str) -> None:
    program_at(tmp_path / "bin" / "nvidia-smi", body)
    with pytest.raises(ShareError, match=line):
        gpus.chosen(None)


def test_no_driver_is_one_line() -> None:
    with pytest.raises(ShareError, match="no NVIDIA driver is here"):
        gpus.chosen(None)


def test_nvml_is_asked_where_its_bindings_are(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    modes = [3]
    nvml = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: ended.append(1),
        nvmlSystemGetDriverVersion=lambda: b"580.1",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=5),
        nvmlDeviceGetComputeMode=lambda handle: modes[-1],
        nvmlDeviceGetUUID=lambda handle: "GPU-aa",
        nvmlDeviceGetName=lambda handle: b"H200",
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert gpus.gpus() == [gpus.Gpu(0, "GPU-aa", "H200", "580.1", 5, "Exclusive_Process")]
    assert ended == [1]
    modes.append(2)
    with pytest.raises(ShareError, match="in compute mode Prohibited"):
        gpus.usable(gpus.chosen(0))


def test_for_a_stub_of_the_driver_no_gpu_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gpus.ANY_GPU, "1")
    assert gpus.chosen(None) == gpus.STUB
    assert gpus.chosen(3).index == 3
    assert gpus.multiprocessors(gpus.STUB) > 0


@pytest.mark.parametrize("number", [-1, -7])
def test_a_negative_number_is_no_gpus(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    for any_gpu in ("1", "0"):  # before any driver is asked
        monkeypatch.setenv(gpus.ANY_GPU, any_gpu)
        with pytest.raises(
            ShareError, match=rf"^--gpu {number}: GPUs are numbered from 0 \(nvidia-smi -L lists them\)$"
        ):
            gpus.chosen(number)
    assert (gpus.numbered(None), gpus.numbered(0), gpus.numbered(3)) == (None, 0, 3)


def test_a_gpu_that_no_program_may_use_is_refused_with_the_remedy(tmp_path: Path) -> None:
    program_at(tmp_path / "bin" / "nvidia-smi", f"print('{TWO.replace('Exclusive_Process', 'Prohibited')}')")
    assert gpus.usable(gpus.chosen(0)).index == 0
    with pytest.raises(ShareError) as refused:
        gpus.usable(gpus.chosen(1))
    assert str(refused.value) == (
        "GPU 1 (NVIDIA H200) is in compute mode Prohibited, in which no program may use it: "
        "nvidia-smi -i 1 -c DEFAULT, as root, lets them"
    )


def test_a_driver_that_does_not_answer_has_no_multiprocessors() -> None:
    assert gpus.multiprocessors(gpus.Gpu(0, "GPU-aa", "H200", "580", 0)) == 0
