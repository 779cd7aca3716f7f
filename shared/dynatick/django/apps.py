"""The Django application, for ``INSTALLED_APPS``: it brings ``manage.py dynatick``, and has no models."""

from __future__ import annotations

from django.apps import AppConfig


class DynatickConfig(AppConfig):
    name = "dynatick.django"
    label = "dynatick"
    verbose_name = "Dynatick"
