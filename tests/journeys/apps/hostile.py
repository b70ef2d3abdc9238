"""A main that harms itself, as its first argument says; it would harm others if nobody looked."""

import os
import signal
import sys
import time

HOW, COUNT = sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 0
LINE = "<script>alert(1)</script>\x1b[2J" + 100 * "x"

if HOW == "prints":
    for _ in range(COUNT):
        print(LINE)
elif HOW == "grows":
    held = []
    while True:
        held.append(b"x" * (16 << 20))
        time.sleep(0.05)
elif HOW == "forks":
    slots, room = os.pipe()
    os.set_blocking(slots, False)
    os.write(room, b"x" * 150)  # No more than this machine bears.
    while True:
        try:
            os.read(slots, 1)
        except BlockingIOError:
            signal.pause()
        os.fork()
elif HOW == "exits":
    sys.exit(3)
elif HOW == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
elif HOW == "endless":
    while True:
        time.sleep(0.01)
elif HOW == "submits":
    import understudy

    env = understudy.get_environment()
    for number in range(COUNT):
        env.execute_async(lambda ctx: ctx.attempt, name=f"{number}")
