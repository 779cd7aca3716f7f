"""A program of the emulator's environment, which has the SAM translator: the template on stdin as plain CloudFormation.

It imports nothing of ``dynatick_stack``.
"""

import json
import sys
from typing import Any

from samtranslator.translator.transform import transform


class _NoPolicies:
    """AWS's own managed policies by their names: the template names none."""

    def load(self) -> dict[str, str]:
        return {}


def plain(body: dict[str, Any]) -> dict[str, Any]:
    parameters = body["Parameters"]
    # The translator puts defaults in the place of some parameters, which could not be given another value then.
    without_defaults = {
        name: {key: value for key, value in one.items() if key != "Default"} for name, one in parameters.items()
    }
    translated: dict[str, Any] = transform({**body, "Parameters": without_defaults}, {}, _NoPolicies())
    return {**translated, "Parameters": parameters}


if __name__ == "__main__":
    json.dump(plain(json.load(sys.stdin)), sys.stdout)
