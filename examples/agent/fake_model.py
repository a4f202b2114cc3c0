"""A model made of rules: offline, free and always the same, it decides by reading the conversation as a model would."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from models import Message, Reply

MOST_OUTLINES = 4


class FakeModel:
    """Decides what to look at next from what the tools have answered so far. It keeps nothing between two calls."""

    environment: Mapping[str, object] = {"model": "rules-1"}

    def complete(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Reply:
        """Return the next reply."""
        said = _Conversation(messages)
        wanted = said.reviewers_calls() if "file_issue" not in {tool["name"] for tool in tools} else said.leads_calls()
        text = "" if wanted else said.review()
        calls = [
            {"id": f"call-{len(messages)}-{number}", "name": name, "arguments": arguments}
            for number, (name, arguments) in enumerate(wanted)
        ]
        read = sum(len(str(message["content"])) for message in messages)
        usage = {"model": "rules-1", "input_tokens": read // 4, "output_tokens": len(text) // 4, "cost_usd": 0}
        return Reply(text=text, calls=calls, usage=usage)

    def stream(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yield the guide word by word."""
        yield from re.findall(r"\S+\s*", "\n".join(_Conversation(messages).guide()))


Wanted = list[tuple[str, dict[str, str]]]


class _Conversation:
    """What was asked for, and what the tools have answered."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.subject = str(messages[1]["content"]).split(" ")[-1]
        answers = [(str(m["name"]), json.loads(m["content"])) for m in messages if m["role"] == "tool"]
        self._answers = answers

    def of(self, name: str) -> list[Any]:
        return [answer for tool, answer in self._answers if tool == name]

    def leads_calls(self) -> Wanted:
        """First the list, then outlines at once, then a review beside a search, then one issue."""
        if not self.of("list_files"):
            return [("list_files", {"folder": self.subject})]
        if not self.of("outline"):
            by_size = sorted(self.of("list_files")[0], key=lambda file: -int(file["lines"]))
            return [("outline", {"path": file["path"]}) for file in by_size[:MOST_OUTLINES]]
        if not self.of("review"):
            return [
                ("review", {"path": self.hardest()["path"]}),
                ("search", {"folder": self.subject, "text": "raise "}),
            ]
        return self.issue_calls()

    def issue_calls(self) -> Wanted:
        """File the issue; where nobody knows whether it was filed, look first."""
        filed, title = self.of("file_issue"), self.title()
        issue = ("file_issue", {"title": title, "body": str(self.of("review")[0])})
        if not filed:
            return [issue]
        if filed[-1].get("outcome") != "unknown":
            return []
        if len(self.of("list_issues")) < len(filed):
            return [("list_issues", {})]
        known = [one["title"] for one in self.of("list_issues")[-1]]
        return [] if title in known else [issue]

    def reviewers_calls(self) -> Wanted:
        if not self.of("outline"):
            return [("outline", {"path": self.subject})]
        longest = _longest(self.of("outline")[0])
        if longest and not self.of("read_function"):
            return [("read_function", {"path": self.subject, "name": longest})]
        return []

    def review(self) -> str:
        """Say what is hard in the function that was read."""
        if not self.of("read_function"):
            return ""
        source, name = str(self.of("read_function")[0]), _longest(self.of("outline")[0])
        lines = source.splitlines()
        deep = max((len(line) - len(line.lstrip())) // 4 for line in lines)
        branches = sum(line.lstrip().startswith(("if ", "elif ", "for ", "while ", "try:", "except")) for line in lines)
        return (
            f"{name} takes {self.of('outline')[0]['functions'][name]} lines and is indented up to {deep} levels. "
            f"Its first {len(lines)} lines have {branches} branches and loops to keep in mind."
        )

    def hardest(self) -> dict[str, Any]:
        """The outlined file with the longest function."""
        outlines: list[dict[str, Any]] = self.of("outline")
        return max(outlines, key=lambda one: max(one["functions"].values(), default=0))

    def title(self) -> str:
        hardest = self.hardest()
        return f"{os.path.basename(hardest['path'])}: {_longest(hardest)} is hard to read"

    def guide(self) -> list[str]:
        """The guide, line by line."""
        listed = self.of("list_files")[0]
        lines = [f"A guide to {os.path.basename(self.subject)}", ""]
        lines.append(f"{len(listed)} files, {sum(file['lines'] for file in listed)} lines. Begin with these:")
        for one in self.of("outline"):
            named = ", ".join(one["classes"]) or ", ".join(list(one["functions"])[:3]) or "nothing of its own"
            lines.append(f"- {os.path.basename(one['path'])} ({named}): {one['purpose'] or 'says nothing of itself'}")
        lines += ["", f"The hardest: {os.path.basename(self.hardest()['path'])}. {self.of('review')[0]}"]
        lines.append(f"Errors are raised in {len(self.of('search')[0])} places or more.")
        lines.append(f"An issue is with its owners: {self.title()}.")
        return lines


def _longest(outline: Mapping[str, Any]) -> str:
    functions: dict[str, int] = outline["functions"]
    return max(functions, key=lambda name: functions[name]) if functions else ""
