"""Throw schemathesis at a server: drawn requests after its own OpenAPI, valid and not. No 5xx, and no hang.

    python -m bench.serve_fuzz                       about 500 requests
    python -m bench.serve_fuzz --examples 5          a short run, as in CI

The application takes any value, so that no task has a reason to fail. Answers are also held against what OpenAPI says
of status, type and body. The requests are the same each time. The row goes to FOLDER/fuzz.jsonl; exit status 1 where
something was found, which schemathesis shows with a curl command each.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.serve_process import Served
from bench.serve_rows import FOLDER, Row, Rows

APP = Path(__file__).with_name("serve_fuzz_app.py")
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
HANGS_S = 20.0
"""A request without an answer for so long hangs."""


def fuzzed(url: str, examples: int, report: Path) -> Row:
    """Send the requests; return how many they were and what was found."""
    words = ["run", f"{url}/openapi.json", "--phases", "examples,coverage,fuzzing", "--checks", ",".join(CHECKS)]
    words += ["--max-examples", str(examples), "--generation-deterministic", "--continue-on-failure", "--no-color"]
    words += ["--request-timeout", str(HANGS_S), "--suppress-health-check", "all"]
    words += ["--report", "json", "--report-json-path", str(report)]
    ended = subprocess.run([sys.executable, "-m", "schemathesis.cli", *words], cwd=report.parent, check=False)
    if not report.exists():
        raise SystemExit("schemathesis did not run: pip install schemathesis")
    found = json.loads(report.read_text())
    return {
        "examples": examples,
        "operations": found["operations"]["tested"],
        "cases": found["test_cases"]["generated"],
        "found": [f"{each['title']}: {', '.join(each['operations'])}" for each in found["failures"]],
        "seconds": round(found["running_time"], 1),
        "met": ended.returncode == 0 and not found["failures"] and not found["errors"],
    }


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=400, help="drawn requests of each operation, at most")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the row")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headway-fuzz-") as temporary:
        server = Served(APP, Path(temporary) / "server", "--port", "0", "--policy", "hash")
        try:
            asyncio.run(server.ready())
            url = asyncio.run(server.status())["url"]
            row = fuzzed(url, given.examples, Path(temporary) / "report.json")
            status = asyncio.run(server.status())  # it still answers
        finally:
            processes = server.processes()
            server.stop()
        row |= {"starts": [worker["starts"] for worker in status["server"]["workers"]], "left": server.left(processes)}
    row["met"] = row["met"] and not row["left"] and set(row["starts"]) == {1}
    Rows(given.out, "fuzz").add(row)
    sys.exit(0 if row["met"] else 1)


if __name__ == "__main__":
    main()
