#!/usr/bin/env python3
"""Types at a program's terminal.
  typed.py PROMPT COMMAND ARGS... <KEYS
Each line of KEYS, with escapes as in Python, is typed after PROMPT has come once more and the program takes single keys.
Prints what came; exits as the program does, or with 99 after 60 s in which nothing came."""
import os
import pty
import select
import sys
import termios
import time

LIMIT_S = 60
prompt, command = sys.argv[1].encode().decode("unicode_escape").encode("latin-1"), sys.argv[2:]
lines = [line.rstrip("\n").encode().decode("unicode_escape").encode("latin-1") for line in sys.stdin]


def wait_for_keys(terminal):
    """Before that, the terminal itself would take Ctrl-C and line breaks."""
    end = time.monotonic() + LIMIT_S
    while termios.tcgetattr(terminal)[3] & termios.ICANON and time.monotonic() < end:
        time.sleep(0.001)


pid, terminal = pty.fork()
if pid == 0:
    os.execvp(command[0], command)
shown, seen = b"", 0
while True:
    ready, _, _ = select.select([terminal], [], [], LIMIT_S)
    try:
        part = os.read(terminal, 65536) if ready else None
    except OSError:  # Linux's way to say that the other side is gone
        part = b""
    if part is None:
        os.kill(pid, 9)
    if not part:
        break
    shown += part
    while lines and shown.find(prompt, seen) >= 0:
        seen = shown.find(prompt, seen) + len(prompt)
        wait_for_keys(terminal)
        os.write(terminal, lines.pop(0))
status = os.waitpid(pid, 0)[1]
sys.stdout.buffer.write(shown)
sys.exit(99 if part is None else os.waitstatus_to_exitcode(status))
