"""Each folder here is for the environment of one framework: elsewhere it is not even looked at."""

from __future__ import annotations

from importlib.util import find_spec

FOLDERS = {"langchain": "langchain", "openai_agents": "agents", "mcp": "mcp"}
"""Folder, and the module that its tests need."""

collect_ignore = [folder for folder, module in FOLDERS.items() if find_spec(module) is None]
