"""The HTTP interface behind API Gateway: tasks, schedules, buckets and ticks.

It calls ``TaskClient``, and attributes have the same meaning. Only the api function imports it, so that other functions
do not load pydantic and the router.
"""

from dynatick.api.application import Answer, Api

__all__ = ["Answer", "Api"]
