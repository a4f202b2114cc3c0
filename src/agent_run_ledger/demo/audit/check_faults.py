"""Rules for likely faults: code that does something other than what it seems to say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from agent_run_ledger.demo.audit.rules import found
from agent_run_ledger.demo.audit.shapes import Finding, Severity
from agent_run_ledger.demo.audit.syntax import FunctionNode, Module, bodies_of, functions_of, walk_scope

_MUTABLE_CALLS = frozenset({"list", "dict", "set", "bytearray", "defaultdict", "deque", "OrderedDict", "Counter"})
_JUMPS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_BLOCKING = {
    "time.sleep": "asyncio.sleep",
    "subprocess.run": "asyncio.create_subprocess_exec",
    "subprocess.call": "asyncio.create_subprocess_exec",
    "subprocess.check_output": "asyncio.create_subprocess_exec",
    "urllib.request.urlopen": "an asynchronous client",
    "requests.get": "an asynchronous client",
    "requests.post": "an asynchronous client",
    "os.system": "asyncio.create_subprocess_shell",
}
_DANGEROUS = frozenset({"eval", "exec", "os.system", "os.popen", "pickle.loads", "pickle.load", "marshal.loads"})


def mutable_defaults(module: Module) -> Iterator[Finding]:
    """A list, dict or set as default value is made once and shared by all calls."""
    for name, node in functions_of(module.tree):
        for argument, default in _defaults(node):
            if _is_mutable(default):
                detail = f"`{argument}` of `{name}` defaults to a value that all calls share"
                yield found(module, "mutable-default", default.lineno, subject=name, detail=detail)


def misleading_tests(module: Module) -> Iterator[Finding]:
    """Tests that are always true or depend on an accident: assert on a tuple, `is` with a literal."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
            yield found(module, "assert-tuple", node.lineno, subject="assert", detail="this assertion cannot fail")
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for index, operator in enumerate(node.ops):
                if isinstance(operator, ast.Is | ast.IsNot) and any(map(_is_literal, sides[index : index + 2])):
                    detail = "whether two equal literals are one object is up to the interpreter"
                    yield found(module, "is-literal", node.lineno, subject="comparison", detail=detail)


def jumps_out_of_finally(module: Module) -> Iterator[Finding]:
    """`return`, `break` or `continue` in a finally block drops the exception in flight."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Try | ast.TryStar):
            for statement in node.finalbody:
                jump = _first_jump(statement)
                if jump is not None:
                    word = type(jump).__name__.lower()
                    detail = f"`{word}` in `finally` swallows the exception in flight"
                    yield found(module, "return-in-finally", jump.lineno, subject=word, detail=detail)


def duplicate_keys(module: Module) -> Iterator[Finding]:
    """A dict display with the same constant key twice keeps only the last value."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Dict):
            continue
        seen: dict[tuple[str, object], int] = {}
        for key in node.keys:
            if not isinstance(key, ast.Constant):
                continue
            place = (type(key.value).__name__, key.value)
            if place in seen:
                detail = f"the key {key.value!r} is already set on line {seen[place]}"
                yield found(module, "duplicate-key", key.lineno, subject="dict", detail=detail)
            seen.setdefault(place, key.lineno)


def redefinitions(module: Module) -> Iterator[Finding]:
    """Two undecorated definitions of one name in one block, with no use in between: the first is lost."""
    scopes: list[tuple[str, ast.AST]] = [("module", module.tree)]
    scopes += [(node.name, node) for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    for scope, node in scopes:
        body: list[ast.stmt] = getattr(node, "body", [])
        seen: dict[str, tuple[int, int]] = {}
        for index, statement in enumerate(body):
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            name = statement.name
            before = seen.get(name)
            if before is not None and not statement.decorator_list and not _uses(body[before[0] + 1 : index], name):
                detail = f"`{name}` in {scope} replaces the definition on line {before[1]}, which nothing used"
                yield found(module, "redefinition", statement.lineno, subject=name, detail=detail)
            if not statement.decorator_list:
                seen[name] = (index, statement.lineno)


def raises_notimplemented(module: Module) -> Iterator[Finding]:
    """NotImplemented is a value for operators, not an exception."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(raised, ast.Name) and raised.id == "NotImplemented":
                detail = "`NotImplemented` is no exception: raising it is a TypeError"
                yield found(module, "raise-notimplemented", node.lineno, subject="raise", detail=detail)


def blocking_in_async(module: Module) -> Iterator[Finding]:
    """A blocking call in a coroutine stops every other task of the loop."""
    for name, node in functions_of(module.tree):
        if not isinstance(node, ast.AsyncFunctionDef):
            continue
        for inner in walk_scope(node):
            called = dotted_name(inner.func) if isinstance(inner, ast.Call) else ""
            if called in _BLOCKING:
                line = getattr(inner, "lineno", node.lineno)
                detail = f"`{called}` blocks the event loop in `{name}`; use {_BLOCKING[called]}"
                yield found(module, "blocking-in-async", line, subject=name, detail=detail)


def unreachable_code(module: Module) -> Iterator[Finding]:
    """Statements after return, raise, break or continue in the same block never run."""
    for node in ast.walk(module.tree):
        for block in bodies_of(node) if isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler) else ():
            for before, after in pairwise(block):
                # `return` followed by a bare yield is the idiom that makes an empty generator.
                if isinstance(before, _JUMPS) and not _is_yield(after):
                    word = type(before).__name__.lower()
                    detail = f"nothing after the `{word}` on line {before.lineno} runs"
                    yield found(module, "unreachable-code", after.lineno, subject=word, detail=detail)
                    break


def dangerous_calls(module: Module) -> Iterator[Finding]:
    """Calls that run text as code or as a shell command, or build arbitrary objects from bytes."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        called = dotted_name(node.func)
        literal = bool(node.args) and isinstance(node.args[0], ast.Constant)
        shell = any(
            keyword.arg == "shell" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            for keyword in node.keywords
        )
        if shell or (called in _DANGEROUS and not literal):
            what = f"`{called or 'a call'}` with `shell=True`" if shell else f"`{called}`"
            severity = Severity.LOW if literal else None
            detail = f"{what} trusts its input completely"
            yield found(module, "dangerous-call", node.lineno, subject=called, detail=detail, severity=severity)


def dotted_name(node: ast.expr) -> str:
    """Return `a.b.c` for a name or a chain of attributes of a name, else an empty string."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _defaults(node: FunctionNode) -> Iterator[tuple[str, ast.expr]]:
    positional = [*node.args.posonlyargs, *node.args.args]
    with_default = positional[len(positional) - len(node.args.defaults) :]
    yield from zip((argument.arg for argument in with_default), node.args.defaults, strict=True)
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is not None:
            yield argument.arg, default


def _is_mutable(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    return isinstance(node, ast.Call) and dotted_name(node.func).rpartition(".")[2] in _MUTABLE_CALLS


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes | int | float | complex) and not isinstance(node.value, bool)
    return isinstance(node, ast.List | ast.Dict | ast.Set | ast.JoinedStr)


def _first_jump(statement: ast.stmt) -> ast.stmt | None:
    """Return the first jump that leaves `statement`, looking into blocks but not into functions or inner loops."""
    pending: list[tuple[ast.AST, bool]] = [(statement, False)]
    while pending:
        node, in_loop = pending.pop(0)
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break | ast.Continue) and not in_loop):
            return node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        inside = in_loop or isinstance(node, ast.For | ast.AsyncFor | ast.While)
        pending.extend((child, inside) for child in ast.iter_child_nodes(node))
    return None


def _uses(statements: list[ast.stmt], name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name for statement in statements for node in ast.walk(statement)
    )


def _is_yield(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield | ast.YieldFrom)
