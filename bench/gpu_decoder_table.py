"""Write the tables of iterations that scenarios use from the cells that were measured.

python -m bench.gpu_decoder_table docs/background/results/h200-decoder src/headway/fleet/scenarios/shipped/decoders

Reads iterations.csv, models.csv and slopes.csv. The sizes that the server had captured, the host's time of an iteration
and what the longest context costs are known of the 7B model only, which was served; the other table has none of them.
"""

import sys
from pathlib import Path

from bench.gpu_decoder_rows import rows_of

NAMES = {"7b": "h200-decoder", "1.3b": "h200-decoder-1.3b"}
HOST_MS = 0.24
"""Mean of what iterations of the server took beyond the GPU's time."""
ROW_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
MIXED_ROW_SIZES = (4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
TOKEN_SIZES = (32, 64, 128, 192, 256, 320, 384, 448, *range(512, 4097, 256))
"""As ``gpu_decoder_serve.Engine`` captures them for 256 running requests and chunks of 512 tokens."""
UNDIVIDED_ROWS, FITTED = 27, "chunked-0.3"


def text_of(folder: Path, model: str) -> str:
    """Return the table of a model as TOML."""
    rows = [row for row in rows_of(folder / "iterations.csv") if row["model"] == model and row["mode"] == "graph"]
    about = next(row for row in rows_of(folder / "models.csv") if row["model"] == model)
    lines = [
        f'model = "{model}: {int(about["parameters"]):,} weights, bf16"',
        'gpu = "NVIDIA H200"',
        'source = "docs/background/results/h200-decoder.md, written by bench/gpu_decoder_table.py"',
        f"kv_bytes_per_token = {about['kv_bytes_per_token']}",
    ]
    if model == "7b":
        slopes = [row for row in rows_of(folder / "slopes.csv") if row["run"] == FITTED]
        low, high = (row["ms_per_1000_tokens"] for row in slopes)
        lines += [f"host_ms = {HOST_MS}", f"undivided_rows = {UNDIVIDED_ROWS}", f"longest_ms = [{low}, {high}]"]
        sizes = {"row_sizes": ROW_SIZES, "mixed_row_sizes": MIXED_ROW_SIZES, "token_sizes": TOKEN_SIZES}
        lines += [f"{key} = {list(values)}" for key, values in sizes.items()]
    axes = {
        "decode": ("decode", "context"),
        "prefill": ("prefill", "prefill_context"),
        "mixed": ("decode", "context", "prefill"),
    }
    for kind, columns in axes.items():
        lines.append(f"{kind} = [")
        lines += [
            f"    [{', '.join(row[name] for name in columns)}, {row['gpu_ms_p50']}],"
            for row in rows
            if row["kind"] == kind
        ]
        lines.append("]")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    for model, name in NAMES.items():
        (target / f"{name}.toml").write_text(text_of(source, model))
