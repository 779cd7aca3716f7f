"""Properties are held to what they say and not to how long it takes: a busy machine is no counterexample."""

from hypothesis import HealthCheck, settings

settings.register_profile("dynatick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dynatick")
