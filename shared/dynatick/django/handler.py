"""The handler of Django's tasks, for the module of the handlers. Importing it sets up Django, by the settings that
``DJANGO_SETTINGS_MODULE`` names: if that fails, the processor says why, and the tasks wait."""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from dynatick.django.backend import ACTION, run
from dynatick.task_function import task

django_tasks = task(ACTION)(run)
"""The action ``django``."""
