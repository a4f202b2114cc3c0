"""LangGraph's functional API as a contender: an entrypoint that calls one task per step, and the SQLite saver."""

from __future__ import annotations

import sys

from langgraph.func import entrypoint, task
from langgraph_saver import opened_saver
from protocol import RUN_ID, Life, Result


def main(life: Life) -> None:
    """Run or resume the entrypoint with the durability that `--option` names (sync or async)."""

    @task
    def step(i: int) -> Result:
        return life.body(i)

    with opened_saver(life) as saver:

        @entrypoint(checkpointer=saver)
        def chain(steps: int) -> Result | None:
            last = None
            for i in range(steps):
                last = step(i).result()
            return last

        config = {"configurable": {"thread_id": RUN_ID}}
        begin = None if life.resume else life.steps
        life.start()
        life.end(chain.invoke(begin, config, durability=life.option))


if __name__ == "__main__":
    main(Life(sys.argv[1:]))
