"""The parts of docs/reference that say what code and template say: written by `make docs`, checked by a test."""
