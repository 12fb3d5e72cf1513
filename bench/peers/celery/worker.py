"""Celery as a peer of the benchmark. main.go submits the jobs.

    worker.py worker -redis URL -pool prefork -concurrency 16    or threads
"""

import argparse
import os
import signal
import sys
import threading
import time

from celery import Celery
from celery.signals import worker_ready

app = Celery("bench")
app.conf.worker_redirect_stdouts = False


@app.task(name="noop")
def noop(payload):
    return str(time.time_ns())


@worker_ready.connect
def ready(**_):
    print("ready", flush=True)
    threading.Thread(target=end_with_input, daemon=True).start()


def end_with_input():
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)  # running tasks may end


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("role", choices=["worker"])
    parser.add_argument("-redis")
    parser.add_argument("-pool")
    parser.add_argument("-concurrency", type=int)
    args = parser.parse_args()
    app.conf.broker_url = app.conf.result_backend = args.redis
    worker = app.Worker(
        pool=args.pool, concurrency=args.concurrency, loglevel="ERROR", quiet=True,
        without_gossip=True, without_mingle=True, without_heartbeat=True,  # what many workers are for each other
    )  # fmt: skip
    worker.start()
    sys.exit(worker.exitcode)
