"""Puts the system up: builds it, deploys template.yaml to a local AWS emulator, shows its logs.

Lives in the checkout only, beside template.yaml, which it deploys unchanged.
"""
