"""What both wings stand on: errors, digests, files, records, paths and tool chains.

Imports the standard library and PyYAML only, so that it is the same in every environment.
"""
