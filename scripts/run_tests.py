"""Run pytest; give browser and soak tests that failed one more chance, alone, and print both outcomes.

Those drive Chromium and whole servers on a machine that may be busy with something else. A contract,
store or engine test is never run again: there, a failure is a defect.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
MAY_REPEAT = ("tests/acceptance/test_page_", "tests/soak/")
REPEATS_MAX = 8  # more than that is not bad luck


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=False).returncode


def failed_tests() -> list[str]:
    """What failed in the last run, by name."""
    return sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []


def main() -> int:
    FAILED.unlink(missing_ok=True)
    code = pytest(*sys.argv[1:])
    failed = failed_tests()
    if code != 1 or not failed or len(failed) > REPEATS_MAX or not all(map(may_repeat, failed)):
        return code
    print(f"\nFailed above and run once more, alone: {', '.join(failed)}", flush=True)
    code = pytest("-n0", *failed)
    outcome = "passed" if code == 0 else "failed again"
    print(
        f"\nFirst outcome: {len(failed)} failed. Second outcome: {outcome}. Mend: {', '.join(failed)}",
        flush=True,
    )
    return code


def may_repeat(test: str) -> bool:
    return test.startswith(MAY_REPEAT)


if __name__ == "__main__":
    sys.exit(main())
