"""A worker such as in the SDK's README, to see what one with nothing to do takes.

    idle.py worker -gateway URL -token T [-plain]    plain is without the extra "metrics" of the package
"""

import os.path
import sys

if "-plain" in sys.argv:
    sys.modules["psutil"] = None  # an import of it fails
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../sdk/python/src"))

from freeslot import Worker  # noqa: E402

worker = Worker(sys.argv[3], token=sys.argv[5], node="idle", slots=4)


@worker.service("noop")
async def noop(job):
    return None


print("ready", flush=True)
worker.run()
