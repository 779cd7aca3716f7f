"""Hypothesis without deadlines, because the machine may be busy."""

from hypothesis import HealthCheck, settings

settings.register_profile("dynatick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dynatick")
