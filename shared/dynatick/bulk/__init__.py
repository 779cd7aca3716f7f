"""Import and export of files of tasks, for the command line and the importer function.

A file is NDJSON (one JSON object in each line), CSV with a heading, or one JSON object; see docs/how-to/import.md.
"""
