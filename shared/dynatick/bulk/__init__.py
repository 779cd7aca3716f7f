"""Many tasks at a time: files of tasks in, files of tasks out. The command line and the importer function share it.

A file is NDJSON (a JSON object a line), CSV with a heading, or one JSON object; docs/how-to/import.md has the format.
"""
