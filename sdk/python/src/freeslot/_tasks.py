"""The end of an event loop."""

from __future__ import annotations

import asyncio
import logging

_log = logging.getLogger("freeslot")


async def end_tasks(grace: float) -> None:
    """Cancels what is left in the loop, and leaves what ignores that."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=grace)
        if left:
            _log.warning("%d tasks ignore that they were cancelled", len(left))
    await asyncio.get_running_loop().shutdown_asyncgens()
