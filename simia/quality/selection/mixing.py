"""Mix domains by shares: the count of each domain, the chosen trajectories, and their order.

Trainers read a file from its start, and a file with one domain after the other teaches the last one best. Which
trajectories of a domain are chosen, and which domain comes next, follows from hashes of (seed, domain, index) alone: a
stream can be mixed without being held in memory, and the same files give the same mix on every machine.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterator, Mapping
from functools import partial

from simia.errors import UserError


def check_shares(shares: Mapping[str, float]) -> None:
    """Raise `UserError` for a share that is negative or not finite."""
    for domain, share in shares.items():
        if not (math.isfinite(share) and share >= 0):
            raise UserError(f"mixing: the share of {domain!r} is {share}; a share is a number from 0 up")


def compute_quotas(shares: Mapping[str, float], total: int, available: Mapping[str, int]) -> dict[str, int]:
    """Turn shares into whole counts by the largest remainder. Raises `UserError` where a domain has too few."""
    if total < 0:
        raise UserError(f"mixing: the total is {total}; it must not be negative")
    check_shares(shares)
    weight = math.fsum(shares.values())
    if weight <= 0:
        raise UserError("mixing: name at least one domain with a share above 0")
    if unknown := sorted(domain for domain, share in shares.items() if share and domain not in available):
        known = ", ".join(sorted(available)) or "none"
        raise UserError(f"mix: the sources contain no pack {', '.join(unknown)}; they contain: {known}")
    exact = {domain: total * share / weight for domain, share in shares.items()}
    counts = {domain: math.floor(value) for domain, value in exact.items()}
    # Of equal remainders the domain that is named first, so that the config decides.
    by_remainder = sorted(exact, key=lambda domain: counts[domain] - exact[domain])
    for domain in by_remainder[: total - sum(counts.values())]:
        counts[domain] += 1
    short = [
        f"{domain} has {available.get(domain, 0)} of {count} wanted"
        for domain, count in counts.items()
        if count > available.get(domain, 0)
    ]
    if short:
        most = min(
            math.floor(available.get(domain, 0) * weight / share) for domain, share in shares.items() if share > 0
        )
        raise UserError(f"mixing: {'; '.join(short)}: lower the total to {most}, change the shares or make more")
    return counts


class Mixer:
    """A mix of domains. `available`: number of trajectories in each domain's stream."""

    def __init__(self, shares: Mapping[str, float], total: int, available: Mapping[str, int], *, seed: int = 0) -> None:
        self.seed = seed
        self.counts = compute_quotas(shares, total, available)
        # Of each domain the indices with the smallest hashes.
        self._chosen = {
            domain: set(heapq.nsmallest(count, range(available[domain]), key=partial(hash_number, seed, domain)))
            for domain, count in self.counts.items()
            if count
        }

    def choose(self, domain: str, index: int) -> bool:
        """Return whether the trajectory at this index of its domain's stream is in the mix."""
        return index in self._chosen.get(domain, ())

    def order(self) -> Iterator[str]:
        """Yield the domain of each row of the mixed file; the domain's next chosen trajectory goes there.

        This is as good as a shuffle, since every order of the domains is equally likely.
        """
        left = dict(self.counts)
        for place in range(sum(left.values())):
            draw = hash_number(self.seed, "order", place) % sum(left.values())
            for domain, count in left.items():
                if draw < count:
                    left[domain] -= 1
                    yield domain
                    break
                draw -= count


def hash_number(seed: int, name: str, index: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}/{index}/{name}".encode(), digest_size=8).digest())
