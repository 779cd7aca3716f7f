"""Sequences that did harm once: each found a fault of the product, which has been mended since.

As ``python -m tests.model.search`` printed them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.model.steps import Found

KEPT: Mapping[str, Found] = {}
