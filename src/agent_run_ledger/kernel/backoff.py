"""How long to wait before a step is tried again: exponential, with full jitter."""

from __future__ import annotations

import math

_MAX_DOUBLINGS = 1000  # 2.0**1024 overflows; every cap is reached long before


def backoff_s(tries: int, *, base_s: float, cap_s: float, fraction: float) -> float:
    """Return the seconds to wait after `tries` tries (1 or more): fraction · min(cap_s, base_s · 2**(tries - 1)).

    `fraction` in [0, 1) comes from the caller's entropy, so many callers that failed at one moment do not come back
    at one moment. The wait is never negative and never above cap_s. Raises ValueError for numbers outside these ranges.
    """
    if tries < 1 or not 0.0 <= fraction < 1.0 or not base_s >= 0.0 or not 0.0 <= cap_s < math.inf:
        raise ValueError(
            f"backoff needs tries >= 1, 0 <= fraction < 1, base_s >= 0 and a finite cap_s >= 0: "
            f"got {tries}, {fraction}, {base_s}, {cap_s}"
        )
    return fraction * min(cap_s, base_s * 2.0 ** min(tries - 1, _MAX_DOUBLINGS))
