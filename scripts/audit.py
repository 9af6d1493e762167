"""Audit every package of requirements.lock against published advisories, and say how many were audited.

pip-audit exits with 0 when it could look up nothing: a package that a service does not know is skipped, and so are packages for other
platforms. So the answers are counted here, and a package with known advisories is asked for as well: a service that knows none of it
holds no advisories. Exit codes: 0 all packages audited and none vulnerable; 1 vulnerable; 2 some skipped; 3 no advisory service answered.

    python scripts/audit.py          (make audit)
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parent.parent / "requirements.lock"
SERVICES = ("pypi", "osv")
KNOWN = ("django", "1.2")  # has had advisories for many years
CLEAN, VULNERABLE, SKIPPED, UNANSWERED = range(4)
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def locked(text: str) -> dict[str, str]:
    """The packages of a lock file, those for other platforms too: normalised name → version."""
    return {normalised(name): version for name, version in PINNED.findall(text)}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def ask(packages: dict[str, str], service: str) -> dict[str, Any] | None:
    """pip-audit's report; None where it gave none. Without hashes and markers, so that it leaves out no package by itself."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder) / "requirements.txt", Path(folder) / "report.json"
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in [*packages.items(), KNOWN]))
        command = [sys.executable, "-m", "pip_audit", "-r", str(wanted), "--no-deps", "--disable-pip"]
        options = ["--vulnerability-service", service, "--format", "json", "--output", str(report)]
        subprocess.run([*command, *options, "--progress-spinner", "off"], capture_output=True, check=False)
        try:
            answer = json.loads(report.read_text())
        except (OSError, ValueError):
            return None
        return answer if isinstance(answer, dict) else None


def judge(packages: dict[str, str], report: dict[str, Any] | None) -> tuple[int, list[str]]:
    """The exit code and what to print."""
    rows = {normalised(row["name"]): row for row in (report or {}).get("dependencies", [])}
    if not rows.get(KNOWN[0], {}).get("vulns"):
        return UNANSWERED, [f"no advisory service answered: 0 of {len(packages)} packages audited"]
    bad, skipped = [], []
    for name, version in packages.items():
        row = rows.get(name)
        if row is None or "skip_reason" in row:
            skipped.append(f"{name} {version}: skipped: {row['skip_reason'] if row else 'no answer for it'}")
        elif row["version"] != version:
            skipped.append(f"{name} {version}: skipped: the answer is for {row['version']}")
        for found in row.get("vulns", []) if row else []:
            fixed = ", ".join(found["fix_versions"]) or "no version yet"
            bad.append(f"{name} {version}: {found['id']}, fixed in {fixed}")
    count = f"{len(packages) - len(skipped)} of {len(packages)} packages audited"
    if bad:
        return VULNERABLE, [*bad, *skipped, f"{count}, {len(bad)} advisories: raise the versions and run make lock"]
    if skipped:
        return SKIPPED, [*skipped, f"{count}, {len(skipped)} skipped: the audit is not complete"]
    return CLEAN, [f"{count}, no known vulnerability"]


def main() -> int:
    packages = locked(LOCK.read_text())
    code, lines = UNANSWERED, list[str]()
    for service in SERVICES:
        code, lines = judge(packages, ask(packages, service))
        if code != UNANSWERED:
            break
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
