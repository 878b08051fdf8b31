"""Asking the person at the terminal: approvals by one key, questions by number or words."""

from __future__ import annotations

import asyncio
import sys

from rich.console import Console
from rich.markup import escape

from everturn.domain.storing import Ask

_KEYS = {"y": "once", "s": "session", "a": "always", "n": "deny"}


def can_ask() -> bool:
    return sys.stdin.isatty()


async def answer_to(ask: Ask, out: Console) -> str:
    """Ask until there is an answer. Runs the prompt in a thread, so that streams go on."""
    if ask.topic == "approval":
        return await _approval(ask, out)
    return await _question(ask, out)


async def _approval(ask: Ask, out: Console) -> str:
    out.print(f"\n[yellow]Approve this call?[/yellow] {escape(ask.text)}")
    out.print(f"  [bold]{escape(ask.name)}[/bold] {escape(ask.label or ask.arguments)}")
    options = [key for key, decision in _KEYS.items() if not ask.choices or decision in ask.choices]
    words = ", ".join(f"{key} {_KEYS[key]}" for key in options)
    while True:
        given = (await _input(f"  [{words}] ")).strip().lower()
        if given[:1] in options:
            return _KEYS[given[:1]]


async def _question(ask: Ask, out: Console) -> str:
    out.print(f"\n[yellow]{escape(ask.text)}[/yellow]")
    for number, choice in enumerate(ask.choices, start=1):
        out.print(f"  {number}  {escape(choice)}")
    while True:
        given = (await _input("  > ")).strip()
        if given.isdigit() and 0 < int(given) <= len(ask.choices):
            return ask.choices[int(given) - 1]
        if given:
            return given


async def _input(prompt: str) -> str:
    return await asyncio.to_thread(input, prompt)
