"""A backend of Django's tasks framework, and its ``manage.py dynatick`` (extra ``django``)."""
