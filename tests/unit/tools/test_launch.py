from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

import pytest

from everturn.tools.sandbox import launch, seccomp

# Looks for the key in its session keyring; prints its number or -1.
_SEARCH = """
import ctypes, sys
libc = ctypes.CDLL(None)
print(libc.syscall(int(sys.argv[1]), 10, -3, b"user", b"everturn-test", 0))
"""
_JOIN, _SESSION = 1, -3


def _launch(limits: str, keyctl: int, *command: str) -> str:
    words = [sys.executable, "-I", "-S", launch.__file__, limits, str(keyctl), "0", "0", *command]
    return subprocess.run(words, capture_output=True, text=True, check=True, env={}).stdout


def test_a_sandbox_does_not_get_the_servers_session_keyring() -> None:
    numbers = seccomp.machine()
    if numbers is None:
        pytest.skip("the number of keyctl is not known for this machine")
    libc = ctypes.CDLL(None, use_errno=True)
    # A keyring for this thread alone, so that the test leaves nothing behind.
    if libc.syscall(ctypes.c_long(numbers.keyctl), _JOIN, None) < 0:
        pytest.skip("keys cannot be used here")
    add_key = numbers.keyctl - 2
    libc.syscall(ctypes.c_long(add_key), b"user", b"everturn-test", b"secret", ctypes.c_size_t(6), _SESSION)
    search = (sys.executable, "-c", _SEARCH, str(numbers.keyctl))
    inherited = subprocess.run(search, capture_output=True, text=True, check=True).stdout
    assert int(inherited) > 0, "an ordinary child has the key"
    assert int(_launch("4=0", numbers.keyctl, *search)) == -1


def test_limits_hold_and_the_environment_is_empty() -> None:
    code = "import os, resource; print(resource.getrlimit(resource.RLIMIT_FSIZE), os.nice(0), sorted(os.environ))"
    said = _launch(f"{resource.RLIMIT_FSIZE}=12345", 0, sys.executable, "-I", "-S", "-X", "utf8", "-c", code)
    nice = max(10, os.nice(0))
    assert said.startswith(f"(12345, 12345) {nice} ")
    assert "PATH" not in said
