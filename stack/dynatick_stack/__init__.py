"""Puts the system up: builds it, deploys template.yaml to a local AWS emulator, shows its logs.

It deploys template.yaml unchanged: the checkout's, or the one that the wheel has packaged.
"""
