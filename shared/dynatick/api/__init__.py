"""The HTTP door: tasks, schedules, buckets, ticks behind API Gateway.

Thin over ``TaskClient``: an attribute means the same there.
Imported by the api function alone, so that pydantic and the router cost the others nothing.
"""

from dynatick.api.application import Answer, Api

__all__ = ["Answer", "Api"]
