"""How many examples property tests try, and which: Hypothesis profiles.

`repeatable` is for `make test`: the examples follow from the test's code alone, so a fresh machine tries what every other one tries.
`thorough` is for `make test-all`: 20 times as many, other ones in each run; `--hypothesis-seed=N` repeats a run. Neither keeps a
database of examples: a test that passes only where an earlier run left something, or fails only there, says nothing about the code.
An example that failed once is written into its test with `@example`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

REPEATABLE, THOROUGH = "repeatable", "thorough"
USUAL = 100
settings.register_profile(REPEATABLE, derandomize=True, database=None, max_examples=USUAL, deadline=None)
settings.register_profile(THOROUGH, database=None, max_examples=20 * USUAL, deadline=None, print_blob=True)


def examples(number: int, **more: Any) -> settings:
    """Settings of a test that tries `number` examples in `make test`, and in proportion under another profile."""
    return settings(max_examples=number * settings.default.max_examples // USUAL, **more)
