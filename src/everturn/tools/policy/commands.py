"""Judges a shell line: hard rules, what asks, what may simply run.

What asks depends on what holds the command. In the sandbox only losing work and meaning to be root matter;
the hosts that it may reach are held by the gate. Where nothing holds it (no sandbox, or the machine's own
network), a line asks unless it is plain and each of its programs is known to stay where it is.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from everturn.tools.policy.hosts import host_concern, hosts_in, is_listed
from everturn.tools.policy.judgement import CallContext, Concern, Judgement, one_line
from everturn.tools.policy.readers import is_inside, is_reader, only_reads
from everturn.tools.policy.shell import ParsedLine, Redirect, SimpleCommand, parse


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENDS_MACHINE = _words("shutdown reboot halt poweroff kexec")
_BREAKS_DISK = re.compile(r"^(mkfs(\..+)?|mke2fs|wipefs|blkdiscard|sgdisk|sfdisk|fdisk|parted|cryptsetup)$")
_DEVICE = re.compile(r"^/dev/(sd|hd|vd|xvd|nvme|mmcblk|mapper/|dm-|md|loop|disk|mem|kmem|port)")
_METADATA = re.compile(
    r"169\.254\.169\.254|metadata\.google\.internal|fd00:ec2::254|100\.100\.100\.200", re.I
)
_FORK_BOMB = re.compile(r"([\w:.]{1,20})\s*\(\)\s*\{\s*\1\s*\|\s*\1\s*&")
_SYSTEM_FOLDERS = _words(
    "/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /sbin /srv /sys /usr /var"
)
_HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr"))


def judge_command(text: str, context: CallContext) -> Judgement:
    """What the policy should know about a shell line."""
    label = one_line(text)
    parsed = parse(text)
    denied = _broken_rule(text, parsed, context)
    if denied:
        return Judgement(label=label, denied=denied)
    concerns = (
        _concerns_in_sandbox(parsed, context)
        if context.is_contained
        else _concerns_outside(text, parsed, context)
    )
    return Judgement(label=label, concerns=tuple(dict.fromkeys(concerns)))


# --- hard rules ------------------------------------------------------------------------------------


def _broken_rule(text: str, parsed: ParsedLine, context: CallContext) -> str:
    """Why nothing can allow this; empty if no hard rule forbids it."""
    if _FORK_BOMB.search(text):
        return "It starts itself without end."
    if _METADATA.search(text):
        return "It asks the cloud's metadata service, which hands out keys."
    if _names_data(text, context):
        return "It touches Everturn's data folder, where its keys and its database are."
    for redirect in parsed.redirects:
        if redirect.is_write and _DEVICE.match(redirect.target.text):
            return f"It writes to the device {redirect.target.text}."
    for command in parsed.commands:
        reason = _broken_rule_of(command)
        if reason:
            return reason
    return ""


def _broken_rule_of(command: SimpleCommand) -> str:
    name, arguments = command.name, command.arguments
    if name in _ENDS_MACHINE or (name in ("init", "telinit") and arguments[:1] in (("0",), ("6",))):
        return f"It ends or restarts the machine ({name})."
    if name == "systemctl" and any(
        word in (*_ENDS_MACHINE, "kexec", "emergency", "rescue") for word in arguments
    ):
        return "It ends or restarts the machine (systemctl)."
    if _BREAKS_DISK.match(name):
        return f"It rewrites disks ({name})."
    if name in ("dd", "tee", "cp", "shred", "cat", "mv") and any(
        _DEVICE.match(word.removeprefix("of=")) for word in arguments
    ):
        return f"It writes to a device ({name})."
    if name in ("rm", "chmod", "chown", "chgrp") and _is_recursive(command):
        for word in arguments:
            if _is_system(word):
                return f"{name} would go through {word} and everything below it."
    if (
        name == "find"
        and {"-delete", "rm", "/bin/rm"}.intersection(arguments)
        and any(_is_system(word) for word in arguments)
    ):
        return "find would delete a system folder."
    return ""


def _is_recursive(command: SimpleCommand) -> bool:
    return any(
        word in ("--recursive", "--no-preserve-root") or re.match(r"^-[a-zA-Z]*[rR]", word)
        for word in command.arguments
    )


def _is_system(word: str) -> bool:
    """Root, home, or a folder directly below root; also with a star or a slash behind it."""
    bare = word.replace('"', "").replace("'", "")
    if re.match(r"^(~[\w-]*|\$\{?HOME\}?)(/?\.?\*?)$", bare):
        return True
    if not bare.startswith("/"):
        return False
    return os.path.normpath(re.sub(r"/\.?\*$", "/", bare)).replace("//", "/") in _SYSTEM_FOLDERS


def _names_data(text: str, context: CallContext) -> bool:
    """Is the data folder named, other than as the way to the workspace?"""
    if context.is_sandboxed:
        return False  # it is not there
    rest = text.replace(str(context.workspace), "")
    names = {str(context.home), str(context.home.resolve()), "$EVERTURN_HOME", "${EVERTURN_HOME}"}
    if context.home.is_relative_to(Path.home()):
        names |= {f"{mark}/{context.home.relative_to(Path.home())}" for mark in ("~", "$HOME", "${HOME}")}
    return any(re.search(re.escape(name) + r"(?![\w.-])", rest) for name in names)


# --- what asks in the sandbox ----------------------------------------------------------------------


def _concerns_in_sandbox(parsed: ParsedLine, context: CallContext) -> list[Concern]:
    concerns = [Concern(reason, is_opaque=True) for reason in parsed.opaque]
    for command in parsed.commands:
        concerns += _command_concerns(command, context)
    return concerns


def _command_concerns(command: SimpleCommand, context: CallContext) -> list[Concern]:
    concerns = []
    if root := _root_program(command):
        concerns.append(Concern(f"it uses {root}", key=_exact(command)))
    if reason := _lost_work(command):
        concerns.append(Concern(reason, key=_exact(command)))
    if context.has_network and not is_reader(command.name):
        concerns += new_hosts(hosts_in(command.arguments), context)
    return concerns


def new_hosts(hosts: Iterable[str], context: CallContext) -> list[Concern]:
    """A concern for each host that the profile does not allow anyway."""
    return [host_concern(host) for host in hosts if not is_listed(host, context.hosts)]


def _root_program(command: SimpleCommand) -> str:
    names = (*command.through, command.name)
    return next((name for name in names if name in ("sudo", "doas", "su", "pkexec")), "")


def _lost_work(command: SimpleCommand) -> str:
    name, arguments = command.name, command.arguments
    if name == "rm" and (_is_recursive(command) or "xargs" in command.through or "find" in command.through):
        is_scratch = all(word.startswith(("-", "/tmp/")) and ".." not in word for word in arguments)  # noqa: S108
        if not (is_scratch and arguments) or command.through:
            return "it deletes whole folders"
    if name in ("shred", "truncate"):
        return f"it destroys content ({name})"
    if name == "find" and "-delete" in arguments:
        return "it deletes what it finds"
    if name == "dd":
        return "it copies raw data (dd)"
    if name == "git":
        return _git_lost_work(arguments)
    return ""


def _git_lost_work(arguments: tuple[str, ...]) -> str:
    verb, rest = _git_verb(arguments)
    if verb == "push":
        return "it pushes to a remote"
    if verb == "reset" and "--hard" in rest:
        return "it throws away uncommitted work (git reset --hard)"
    if verb == "clean" and any(re.match(r"^-[a-zA-Z]*f|^--force", word) for word in rest):
        return "it deletes files that git does not know (git clean)"
    if verb in ("checkout", "restore") and ("." in rest or "--" in rest or "-f" in rest):
        return f"it throws away uncommitted work (git {verb})"
    if verb == "stash" and rest[:1] in (("drop",), ("clear",)):
        return "it throws away stashed work"
    if verb == "branch" and any(word in ("-D", "--delete") for word in rest):
        return "it deletes a branch"
    if verb in ("filter-branch", "filter-repo", "update-ref", "gc", "reflog"):
        return f"it rewrites history (git {verb})"
    return ""


# --- what asks where nothing holds it --------------------------------------------------------------


def _concerns_outside(text: str, parsed: ParsedLine, context: CallContext) -> list[Concern]:
    """Everything asks, except reading inside the workspace.

    A lasting answer covers exactly this line in this workspace. One for a part of it would cover too much:
    what a program does depends on its options and on what ran before it (``cd /``).
    """
    reasons = [*parsed.opaque, *([parsed.beyond] if parsed.beyond else [])]
    opaque = [_outside_concern(reason, context, is_opaque=True) for reason in reasons]
    asking = [command for command in parsed.commands if not only_reads(command, context.workspace)]
    others = [
        *(_reason(command, context) for command in asking),
        *(_redirect_reason(redirect) for redirect in parsed.redirects if _reaches_out(redirect, context)),
    ]
    if not parsed.commands and not opaque:
        others.append("there is no command in it that could be judged")
    key = "" if opaque else f"in {shlex.quote(str(context.workspace))} run exactly {text.strip()}"
    return [*opaque, *(_outside_concern(reason, context, key=key) for reason in others)]


def _outside_concern(reason: str, context: CallContext, *, key: str = "", is_opaque: bool = False) -> Concern:
    return Concern(reason, key=key, sends=True, is_outside=context.reaches_outside, is_opaque=is_opaque)


def _reason(command: SimpleCommand, context: CallContext) -> str:
    if reason := _lost_work(command):
        return reason
    if root := _root_program(command):
        return f"it uses {root}"
    if context.is_sandboxed and not context.is_guarded:
        return f"it could change what other programs run in this project ({command.name})"
    if context.is_sandboxed:
        return f"it could reach the network ({command.name})"
    return f"it runs without a sandbox ({command.name})"


def _reaches_out(redirect: Redirect, context: CallContext) -> bool:
    target = redirect.target
    if target.is_fixed and target.text in _HARMLESS_TARGETS:
        return False
    return redirect.is_write or not target.is_fixed or not is_inside(target.text, context.workspace)


def _redirect_reason(redirect: Redirect) -> str:
    return f"it {'writes to' if redirect.is_write else 'reads'} {redirect.target.text}"


# --- words -----------------------------------------------------------------------------------------


def _exact(command: SimpleCommand) -> str:
    """This command and no other. With a computed word there is no such thing: it changes its meaning."""
    if not all(word.is_fixed for word in command.words):
        return ""
    return "run exactly " + shlex.join((*command.through, *(word.text for word in command.words)))


def _git_verb(arguments: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in ("-C", "-c", "--git-dir", "--work-tree") else 1
    return (arguments[at], arguments[at + 1 :]) if at < len(arguments) else ("", ())
